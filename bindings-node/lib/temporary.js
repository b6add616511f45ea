'use strict';
// A profiler that `spanprof/pprof` starts for itself while the program runs none. It sends nothing, and ends with its last use, or
// when the program starts its own.

const { native } = require('./native.js');

/** Nothing but the samples that are requested, at the rate that was requested. */
const OPTIONS = {
  destinations: [], cpu: false, wall: false, heap: false, gc: false, lock: false, offCpu: false, threads: false, retention: 'all',
  eventLoopBlock: 0, workerThreads: false, cpuBudget: 0,
};

/** @type {Set<string>} */
const uses = new Set();
let isStarted = false;
/** Continue what was begun with the temporary profiler, after the program's has replaced it. @type {Set<() => void>} */
const resumptions = new Set();

/**
 * Starts and stops the temporary profiler. Passed in, since `lifecycle.js` requires this module.
 * @type {Pick<typeof import('./lifecycle.js'), 'startQuietly' | 'update' | 'stop' | 'stopSync'>}
 */
let lifecycle;

/** @param {typeof lifecycle} functions */
function setLifecycle(functions) {
  lifecycle = functions;
}

/**
 * Makes sure that a profiler runs. The settings apply to a temporary one only.
 * @param {string} use
 * @param {import('./lifecycle.js').Options} settings
 */
function acquire(use, settings) {
  if (!native.isRunning()) {
    uses.clear();
    isStarted = lifecycle.startQuietly(/** @type {any} */ (OPTIONS));
  } else {
    // A worker thread that is not enrolled yet.
    native.registerThread();
  }
  if (!isStarted) return;
  uses.add(use);
  lifecycle.update(settings);
}

/**
 * Ends a use.
 * @param {string} use
 * @param {import('./lifecycle.js').Options} settings that undo those of `acquire`
 * @returns {boolean} whether the temporary profiler must stop
 */
function release(use, settings) {
  if (!uses.delete(use)) return false;
  if (uses.size > 0) lifecycle.update(settings);
  return uses.size === 0;
}

/** Stops the temporary profiler. */
async function stop() {
  isStarted = false;
  await lifecycle.stop();
}

/** As {@link stop}, on this thread. */
function stopSync() {
  isStarted = false;
  lifecycle.stopSync();
}

/** Stops the temporary profiler, if there is one, so that the program's can start. */
function replace() {
  if (!isStarted) return false;
  uses.clear();
  stopSync();
  return true;
}

function resume() {
  for (const resumption of resumptions) resumption();
}

module.exports = { setLifecycle, acquire, release, stop, stopSync, replace, resume, resumptions };
