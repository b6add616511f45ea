export const native: import("./noop.js").Native;
export const folder: string;
