'use strict';
// Two functions with unique names, called once: inside the inner one the native module tests whether a stack walk contains both.
// As source text, since bundlers rename functions.

const vm = require('node:vm');
const { native } = require('./native.js');

const FUNCTIONS = `(function (select) {
  function spanprofSelfTestInner(allowFramePointers) {
    const method = select(allowFramePointers);
    return method;
  }
  function spanprofSelfTestOuter(allowFramePointers) {
    const method = spanprofSelfTestInner(allowFramePointers);
    return method;
  }
  return spanprofSelfTestOuter;
})`;

/**
 * Selects the walk method: `own`, `v8` or `none`.
 * @param {boolean} allowFramePointers
 * @returns {string}
 */
function selfTest(allowFramePointers) {
  return new vm.Script(FUNCTIONS, { filename: 'spanprof:self_test' }).runInThisContext()(native.selectStackWalk)(allowFramePointers);
}

module.exports = selfTest;
