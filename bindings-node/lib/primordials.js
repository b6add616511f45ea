'use strict';
// What this package uses of JavaScript and Node.js in place of globals that tests replace: fake timers may be installed before the
// package is loaded, or later. `tests/globals.test.js` checks that no other module reads such a global. Clocks and timers are the
// native module's.

const { Promise } = globalThis;

/** Set in the `exit` event: no task follows in which a warning would be emitted. */
let isExiting = false;
/** Warnings to be emitted after the running code. @type {Set<Error>} */
const pending = new Set();

/**
 * Emits a process warning after the running code, or at once during the exit. Not by `process.emitWarning`, whose warnings depend on
 * `process.nextTick`.
 * @param {string} text
 * @param {string} [code]
 */
function emitWarning(text, code) {
  const warning = Object.assign(new Error(text), { name: 'SpanprofWarning' }, code === undefined ? {} : { code });
  pending.add(warning);
  if (isExiting) emit(warning);
  else emitLater(warning);
}

/** @param {Error} warning */
async function emitLater(warning) {
  await undefined;
  emit(warning);
}

/** @param {Error} warning */
function emit(warning) {
  // Node's own listener writes to standard error synchronously, and `--no-warnings` removes it.
  if (!pending.delete(warning)) return;
  try {
    process.emit('warning', warning);
  } catch {
    // An exception of a listener of the program.
  }
}

/** Emits all warnings, in a handler of `exit`. */
function emitPending() {
  isExiting = true;
  pending.forEach(emit);
}

module.exports = { Promise, emitWarning, emitPending };
