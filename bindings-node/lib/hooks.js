'use strict';
// Before Node.js 24 native code cannot read the current async context: an `async_hooks` hook reports the context id at each
// switch. Installed when the first scope is entered.

const { createHook } = require('node:async_hooks');
const { native } = require('./native.js');

/** Nested callbacks beyond this depth are not restored one by one. */
const MAX_NESTED = 1024;

let current = 0;
/** The profiler's copy of the id, where JavaScript may write to it. @type {Float64Array | null} */
let contextArray = null;
/** Async ids of the running callbacks. @type {number[]} */
const running = [];
/** The id that was current before each of them. @type {number[]} */
const outerIds = [];

/**
 * Makes `id` the one that samples carry; returns the previous one.
 * @param {number} id
 */
function exchange(id) {
  const before = current;
  if (id !== before) {
    current = id;
    if (contextArray === null) native.setCurrent(id);
    else contextArray[0] = id;
  }
  return before;
}

/** @param {import('node:async_hooks').AsyncLocalStorage<number>} storage */
function install(storage) {
  contextArray = native.contextArray();
  createHook({
    before(asyncId) {
      if (running.length < MAX_NESTED) {
        running.push(asyncId);
        outerIds.push(current);
      }
      exchange(storage.getStore() ?? 0);
    },
    after(asyncId) {
      // The end of a nested callback restores the outer id. A callback that threw has no `after` of its own.
      const depth = running.lastIndexOf(asyncId);
      if (depth < 0) return;
      exchange(outerIds[depth]);
      running.length = depth;
      outerIds.length = depth;
    },
  }).enable();
  exchange(storage.getStore() ?? 0);
}

module.exports = { exchange, install };
