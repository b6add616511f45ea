'use strict';
// `process.execve` with `clock: 'sigtrap'`: a pending SIGTRAP during `exec` ends the new program, so the calling thread's CPU
// clock is suspended around the call. With other clocks nothing is wrapped.

const { native } = require('./native.js');

// Missing in the type declarations of the oldest supported Node.js.
const processWithExecve = /** @type {{ execve?: (...words: any[]) => never }} */ (process);

let installed = false;

/** Wraps `process.execve` once, if it exists and the clock requires it. */
function install() {
  const { execve } = processWithExecve;
  if (installed || execve === undefined || native.setting('clock') !== 'sigtrap') return;
  installed = true;
  processWithExecve.execve = function (...args) {
    native.suspendCurrentThread();
    try {
      return Reflect.apply(execve, this, args);
    } finally {
      // Reached only if `execve` threw.
      native.resumeCurrentThread();
    }
  };
}

module.exports = { install };
