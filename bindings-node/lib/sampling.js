'use strict';
// Selects how stacks are walked: along frame pointers or by V8, the first that passes the self-test in this Node.js. One warning
// reports V8's walk. Not here: the walks (native core), and that `start` declines where both fail.

const { native } = require('./native.js');
const hostLog = require('./host_log.js');
const hostRuntime = require('./host_runtime.js');
// Required at once, compiled when first called, to keep the start short.
const selfTest = require('./self_test.js');

/** @typedef {'auto' | 'own' | 'v8'} StackWalk */

let isTested = false;

/**
 * @param {string} configJson
 * @param {string} programName
 * @param {StackWalk} stackWalk `auto`, or the first method to try
 * @returns {boolean} whether samples are being taken; throws as the native `start` does
 */
function start(configJson, programName, stackWalk) {
  if (!isTested && !native.isRunning() && native.isEnabled(configJson)) test(stackWalk);
  return native.start(configJson, programName, hostRuntime.name());
}

/** @param {StackWalk} stackWalk */
function test(stackWalk) {
  try {
    if (!native.registerThread()) return;
    native.expectSelfTest();
    isTested = true;
    if (selfTest(stackWalk !== 'v8') === 'v8' && stackWalk !== 'v8') {
      hostLog.log('warning', `spanprof: stacks of ${hostRuntime.name()} cannot be walked along frame pointers; V8 walks them, which costs more`);
    }
  } catch {
    // No method is selected, and the native `start` gives the reason.
  }
}

module.exports = { start };
