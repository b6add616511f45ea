'use strict';
// The last means where stacks cannot be walked: the inspector's own sampler in this process, whose profiles are handed to the
// native module once a window. Main thread only, no labels; each hand-over costs what `Profiler.stop` costs.

const { native } = require('./native.js');

/** @type {import('node:inspector').Session | undefined} */
let session;
/** @type {NodeJS.Timeout | undefined} */
let timer;

/**
 * @param {number} rateHz
 * @param {number} seconds of a window
 */
function begin(rateHz, seconds) {
  if (session !== undefined) return;
  const { Session } = require('node:inspector');
  const begun = new Session();
  begun.connect();
  begun.post('Profiler.enable');
  begun.post('Profiler.setSamplingInterval', { interval: Math.max(100, Math.round(1e6 / rateHz)) });
  begun.post('Profiler.start');
  session = begun;
  timer = setInterval(handOver, seconds * 1000).unref();
}

/** Hands over what was sampled so far, and goes on. Called by a timer too: nothing leaves it. */
function handOver() {
  try {
    take();
    session?.post('Profiler.start');
  } catch {
    // This window's samples are lost; the next one tries again.
  }
}

function take() {
  // Within one process the answer comes before `post` returns.
  session?.post('Profiler.stop', (error, answer) => {
    if (error === null && answer?.profile !== undefined) native.submitProfile(JSON.stringify(answer.profile));
  });
}

/** Hands over the rest and ends. */
function end() {
  if (session === undefined) return;
  clearInterval(timer);
  try {
    take();
    session.disconnect();
  } catch {
    // What it has seen since the last window is lost.
  } finally {
    session = undefined;
  }
}

module.exports = { begin, handOver, end };
