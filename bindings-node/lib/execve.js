'use strict';
// `process.execve` with `clock: 'sigtrap'`: a trap that is pending during `exec` ends the new program, so the calling thread has
// no CPU clock while it calls. Other clocks need nothing of this, and nothing is wrapped for them.

const { native } = require('./native.js');

// Newer than the declarations of Node.js that the oldest supported version has.
const host = /** @type {{ execve?: (...words: any[]) => never }} */ (process);

let installed = false;

/** Wraps the function once, if there is one and the clock needs it. */
function install() {
  const { execve } = host;
  if (installed || execve === undefined || native.setting('clock') !== 'sigtrap') return;
  installed = true;
  host.execve = function (...words) {
    native.suspendCurrentThread();
    try {
      return Reflect.apply(execve, this, words);
    } finally {
      // It threw, else nobody would be here.
      native.resumeCurrentThread();
    }
  };
}

module.exports = { install };
