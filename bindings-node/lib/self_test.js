'use strict';
// Two functions whose names nobody else has: called once, while the native module looks whether a walk made inside the
// inner one meets both.

const { native } = require('./native.js');

/** @param {boolean} ownIsAllowed */
function spanprofSelfTestInner(ownIsAllowed) {
  const means = native.judgeWalks(ownIsAllowed);
  return means;
}

/** @param {boolean} ownIsAllowed */
function spanprofSelfTestOuter(ownIsAllowed) {
  const means = spanprofSelfTestInner(ownIsAllowed);
  return means;
}

module.exports = spanprofSelfTestOuter;
