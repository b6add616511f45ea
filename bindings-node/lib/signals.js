'use strict';
// Sends the last window before a signal ends the process, for the signals in `stopOnSignals`. Without that option no listener is
// installed, since a listener replaces the signal's default action. Not here: SIGTERM without a listener (native core).

const os = require('node:os');
const { native } = require('./native.js');

/** @type {Map<string, () => void>} */
const installed = new Map();

/**
 * Whether a process can listen for the signal of this name.
 * @param {unknown} name
 */
function canListen(name) {
  return typeof name === 'string' && Object.hasOwn(os.constants.signals, name) && name !== 'SIGKILL' && name !== 'SIGSTOP';
}

/**
 * @param {readonly string[]} names
 * @param {() => Promise<unknown>} stop
 */
function install(names, stop) {
  for (const name of names) {
    if (installed.has(name)) continue;
    const listener = () => {
      uninstall(name);
      // A second signal has the default action and ends the process at once.
      const isAlone = process.listenerCount(name) === 0;
      stop().finally(() => {
        // Otherwise the program's own listeners decide when it ends.
        if (isAlone && process.listenerCount(name) === 0) process.kill(process.pid, name);
      });
    };
    installed.set(name, listener);
    // First in order, so that the program's own `once` listeners are still counted.
    process.prependListener(/** @type {NodeJS.Signals} */ (name), listener);
  }
}

/** @param {string} name */
function uninstall(name) {
  const listener = installed.get(name);
  if (listener === undefined) return;
  installed.delete(name);
  process.removeListener(name, listener);
}

/**
 * Listens to `removeListener` of `process`, after the listener of Node.js, which restores the default action.
 * @param {string | symbol} name
 */
function listenerRemoved(name) {
  if (name === 'SIGTERM') native.delayTermination();
}

/** Restores the default actions. */
function uninstallAll() {
  for (const name of [...installed.keys()]) uninstall(name);
}

module.exports = { canListen, install, listenerRemoved, uninstallAll };
