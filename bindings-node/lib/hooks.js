'use strict';
// Before Node 24 nobody but JavaScript knows which async resource runs: each switch tells the profiler the current id. Only
// installed when the first scope is entered.

const { createHook } = require('node:async_hooks');
const { native } = require('./native.js');

/** Callbacks inside callbacks deeper than this are not restored one by one. */
const MAX_NESTED = 1024;

let now = 0;
/** Where the profiler reads the id, if JavaScript may write there. @type {Float64Array | null} */
let word = null;
/** Async ids of running callbacks, and the id that was current around each. @type {number[]} */
const running = [];
/** @type {number[]} */
const around = [];

/**
 * Makes `id` the one that samples carry; returns the one before.
 * @param {number} id
 */
function exchange(id) {
  const before = now;
  if (id !== before) {
    now = id;
    if (word === null) native.setCurrent(id);
    else word[0] = id;
  }
  return before;
}

/** @param {import('node:async_hooks').AsyncLocalStorage<number>} storage */
function install(storage) {
  word = native.currentWord();
  createHook({
    before(asyncId) {
      if (running.length < MAX_NESTED) {
        running.push(asyncId);
        around.push(now);
      }
      exchange(storage.getStore() ?? 0);
    },
    after(asyncId) {
      // A callback inside a callback ends: the outer one goes on, with what it had. One that threw has no end of its own.
      const at = running.lastIndexOf(asyncId);
      if (at < 0) return;
      exchange(around[at]);
      running.length = at;
      around.length = at;
    },
  }).enable();
  exchange(storage.getStore() ?? 0);
}

module.exports = { exchange, install };
