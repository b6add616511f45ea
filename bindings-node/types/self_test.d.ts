export = selfTest;
/**
 * How stacks are walked from here on: `own`, `v8` or `none`.
 * @param {boolean} ownIsAllowed
 * @returns {string}
 */
declare function selfTest(ownIsAllowed: boolean): string;
