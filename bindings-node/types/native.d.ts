export let native: import("./absent.js").Native;
