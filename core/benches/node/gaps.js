'use strict';
// For how long the thread that runs JavaScript stands still: a busy loop reads the clock and notes the largest distance between
// two readings, for each millisecond.

const waiting = new Int32Array(new SharedArrayBuffer(4));

/**
 * Spins for so many milliseconds; the largest gap of each of them, in microseconds. A gap belongs to the millisecond in which
 * it ends. `stop` is called once, halfway: what it takes is a gap.
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

/** Stands still for about so long. */
function standStill(milliseconds) {
  Atomics.wait(waiting, 0, 0, milliseconds);
}

module.exports = { spin, standStill };
