export = selfTest;
/**
 * Selects the walk method: `own`, `v8` or `none`.
 * @param {boolean} allowFramePointers
 * @returns {string}
 */
declare function selfTest(allowFramePointers: boolean): string;
