'use strict';
// Pauses of the JavaScript thread: a busy loop reads the clock and records the largest gap between two readings, for each
// millisecond.

const waiting = new Int32Array(new SharedArrayBuffer(4));

/**
 * Spins for so many milliseconds; returns the largest gap of each, in microseconds. A gap belongs to the millisecond in which
 * it ends. `stop` is called once, halfway: its duration is a gap.
 */
function spin(milliseconds, stop = () => {}) {
  const largestUs = new Float64Array(milliseconds);
  const began = performance.now();
  let halfway = milliseconds / 2;
  let last = began;
  for (;;) {
    const now = performance.now();
    const slice = Math.floor(now - began);
    if (slice >= milliseconds) return largestUs;
    largestUs[slice] = Math.max(largestUs[slice], (now - last) * 1000);
    last = now;
    if (slice >= halfway) {
      halfway = Infinity;
      stop();
    }
  }
}

/** Blocks for about so long. */
function standStill(milliseconds) {
  Atomics.wait(waiting, 0, 0, milliseconds);
}

module.exports = { spin, standStill };
