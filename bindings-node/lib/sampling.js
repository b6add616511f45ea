'use strict';
// By which means stacks are sampled: our own walk, V8's, or the inspector's sampler; the first that this Node allows. What is
// not the first is said once. Not here: the walks (native core).

const { native } = require('./native.js');
const hostLog = require('./host_log.js');
const inspector = require('./inspector.js');
// Loaded here, compiled when first called: at start it shall take no time to find.
const selfTest = require('./self_test.js');

/** @typedef {'auto' | 'own' | 'v8' | 'inspector'} StackWalk */

/** What the self-test found in this process. @type {string | undefined} */
let found;
let said = false;

/**
 * @param {string} configJson
 * @param {string} programName
 * @param {StackWalk} stackWalk `auto`, or the best of the means to be tried
 * @returns {boolean} whether samples are being taken
 */
function begin(configJson, programName, stackWalk) {
  if (native.isRunning() || !native.isWanted(configJson)) return native.start(configJson, programName, false);
  const means = stackWalk === 'inspector' ? 'none' : judged(stackWalk);
  sayOnce(means, stackWalk);
  if (means !== 'none') return native.start(configJson, programName, false);
  if (!native.start(configJson, programName, true)) return false;
  try {
    inspector.begin(Number(native.setting('sample_rate')) || 100, Number(native.setting('upload_interval')) || 10);
    return true;
  } catch (error) {
    // A Node that was built without it, or where it may not be used: the program runs on without profiles.
    native.stopSync();
    hostLog.say('warning', `spanprof does nothing in this process: ${error instanceof Error ? error.message : error}`);
    return false;
  }
}

/** @param {StackWalk} stackWalk */
function judged(stackWalk) {
  if (found !== undefined) return found;
  try {
    if (!native.registerThread()) return 'none';
    native.expectSelfTest();
    found = selfTest(stackWalk !== 'v8');
  } catch {
    found = 'none';
  }
  return found;
}

/**
 * @param {string} means
 * @param {StackWalk} stackWalk
 */
function sayOnce(means, stackWalk) {
  if (said || means === 'own' || stackWalk === (means === 'none' ? 'inspector' : means)) return;
  said = true;
  const what = means === 'v8'
    ? 'V8 walks them, which costs more'
    : "the inspector's sampler is used instead: the main thread only, and no labels";
  hostLog.say('warning', `spanprof: stacks of Node.js ${process.version} cannot be walked by our own means; ${what}`);
}

module.exports = { begin, handOver: inspector.handOver, end: inspector.end };
