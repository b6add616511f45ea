export const native: import("./absent.js").Native;
