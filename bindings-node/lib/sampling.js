'use strict';
// Selects how stacks are sampled: along frame pointers, by V8, or by the inspector's sampler; the first that works in this
// Node.js. One warning reports a fallback. Not here: the walks (native core).

const { native } = require('./native.js');
const hostLog = require('./host_log.js');
const inspector = require('./inspector.js');
// Required at once, compiled when first called, to keep the start short.
const selfTest = require('./self_test.js');

/** @typedef {'auto' | 'own' | 'v8' | 'inspector'} StackWalk */

/** Result of the self-test in this process. @type {string | undefined} */
let selected;
let warned = false;

/**
 * @param {string} configJson
 * @param {string} programName
 * @param {StackWalk} stackWalk `auto`, or the first method to try
 * @returns {boolean} whether samples are being taken
 */
function start(configJson, programName, stackWalk) {
  if (native.isRunning() || !native.isEnabled(configJson)) return native.start(configJson, programName, false);
  const method = stackWalk === 'inspector' ? 'none' : select(stackWalk);
  warnOnce(method, stackWalk);
  if (method !== 'none') return native.start(configJson, programName, false);
  if (!native.start(configJson, programName, true)) return false;
  try {
    inspector.start(Number(native.setting('sample_rate')) || 100, Number(native.setting('upload_interval')) || 10);
    return true;
  } catch (error) {
    // Node.js was built without the inspector, or forbids it: the program continues without profiles.
    native.stopSync();
    hostLog.log('warning', `spanprof does nothing in this process: ${error instanceof Error ? error.message : error}`);
    return false;
  }
}

/** @param {StackWalk} stackWalk */
function select(stackWalk) {
  if (selected !== undefined) return selected;
  try {
    if (!native.registerThread()) return 'none';
    native.expectSelfTest();
    selected = selfTest(stackWalk !== 'v8');
  } catch {
    selected = 'none';
  }
  return selected;
}

/**
 * @param {string} method
 * @param {StackWalk} stackWalk
 */
function warnOnce(method, stackWalk) {
  if (warned || method === 'own' || stackWalk === (method === 'none' ? 'inspector' : method)) return;
  warned = true;
  const fallback = method === 'v8'
    ? 'V8 walks them, which costs more'
    : "the inspector's sampler is used instead: the main thread only, and no labels";
  hostLog.log('warning', `spanprof: stacks of Node.js ${process.version} cannot be walked along frame pointers; ${fallback}`);
}

module.exports = { start, submit: inspector.submit, stop: inspector.stop };
