export const native: import("./absent.js").Native;
export const folder: string;
