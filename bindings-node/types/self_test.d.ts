export = spanprofSelfTestOuter;
/** @param {boolean} ownIsAllowed */
declare function spanprofSelfTestOuter(ownIsAllowed: boolean): string;
