declare const _exports: {
    native: import("./absent.js").Native;
    missingBecause: string;
};
export = _exports;
