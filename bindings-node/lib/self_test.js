'use strict';
// Two functions whose names nobody else has: called once, while the native module looks whether a walk made inside the
// inner one meets both. As text, since bundlers rename functions.

const vm = require('node:vm');
const { native } = require('./native.js');

const FUNCTIONS = `(function (judge) {
  function spanprofSelfTestInner(ownIsAllowed) {
    const means = judge(ownIsAllowed);
    return means;
  }
  function spanprofSelfTestOuter(ownIsAllowed) {
    const means = spanprofSelfTestInner(ownIsAllowed);
    return means;
  }
  return spanprofSelfTestOuter;
})`;

/**
 * How stacks are walked from here on: `own`, `v8` or `none`.
 * @param {boolean} ownIsAllowed
 * @returns {string}
 */
function selfTest(ownIsAllowed) {
  return new vm.Script(FUNCTIONS, { filename: 'spanprof:self_test' }).runInThisContext()(native.judgeWalks)(ownIsAllowed);
}

module.exports = selfTest;
