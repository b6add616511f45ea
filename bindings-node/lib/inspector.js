'use strict';
// The fallback where stacks cannot be walked: the inspector's own sampler in this process, whose profiles are submitted to the
// native module once per window. Main thread only, no labels; each submission costs as much as `Profiler.stop`.

const { native } = require('./native.js');

/** @type {import('node:inspector').Session | undefined} */
let session;
/** @type {NodeJS.Timeout | undefined} */
let timer;

/**
 * @param {number} rateHz
 * @param {number} seconds of a window
 */
function start(rateHz, seconds) {
  if (session !== undefined) return;
  const { Session } = require('node:inspector');
  const connected = new Session();
  connected.connect();
  connected.post('Profiler.enable');
  connected.post('Profiler.setSamplingInterval', { interval: Math.max(100, Math.round(1e6 / rateHz)) });
  connected.post('Profiler.start');
  session = connected;
  timer = setInterval(submit, seconds * 1000).unref();
}

/** Submits the samples so far, and continues. Never throws, since a timer calls it. */
function submit() {
  try {
    submitProfile();
    session?.post('Profiler.start');
  } catch {
    // The samples of this window are lost; the next one starts normally.
  }
}

function submitProfile() {
  // In the same process `post` calls back before it returns.
  session?.post('Profiler.stop', (error, result) => {
    if (error === null && result?.profile !== undefined) native.submitProfile(JSON.stringify(result.profile));
  });
}

/** Submits the remaining samples, and stops. */
function stop() {
  if (session === undefined) return;
  clearInterval(timer);
  try {
    submitProfile();
    session.disconnect();
  } catch {
    // The samples since the last window are lost.
  } finally {
    session = undefined;
  }
}

module.exports = { start, submit, stop };
