'use strict';
// Labels of a scope: one AsyncLocalStorage that holds the id of a context, 0 or nothing for none. What an id stands for is
// the core's. From Node 24 on the profiler reads the storage by itself; before, `hooks` tells it at each switch.

const { AsyncLocalStorage } = require('node:async_hooks');
const { native } = require('./native.js');
const hooks = require('./hooks.js');

/** @typedef {Record<string, unknown> | Map<string, unknown>} Labels */

/** @type {AsyncLocalStorage<number>} */
const storage = new AsyncLocalStorage();
let entered = false;
let told = false;
let hooked = false;

/** Makes the storage known, the first time that a scope is entered while profiling: before, nobody asks for it. */
function tell() {
  entered = true;
  if (!native.isRunning()) return;
  told = true;
  try {
    native.registerThread();
    // Two numbers that no context has: found twice, the place is certain.
    const found = [1_234_567, 7_654_321].map((probe) => storage.run(probe, () => native.registerStorage(storage, probe)));
    hooked = !found[1];
    if (hooked) hooks.install(storage);
  } catch {
    hooked = false;
  }
}

/** Profiling begins: scopes that were entered before go on in its samples. */
function beginFollowing() {
  if (entered && !told) tell();
}

/** The id of the context that is current here. */
function current() {
  return storage.getStore() ?? 0;
}

/**
 * Runs `fn` under the context `id`, and what it awaits and starts.
 * @template {any[]} A
 * @template R
 * @param {number} id
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
function run(id, fn, args) {
  if (!told) tell();
  if (!hooked) {
    try {
      return storage.run(id, fn, ...args);
    } finally {
      // Profiling began meanwhile.
      if (hooked) hooks.exchange(current());
    }
  }
  const before = hooks.exchange(id);
  try {
    return storage.run(id, fn, ...args);
  } finally {
    hooks.exchange(before);
  }
}

/**
 * Makes `id` current from here to the end of what runs here, and in what it starts.
 * @param {number} id
 */
function enter(id) {
  if (!told) tell();
  storage.enterWith(id);
  if (hooked) hooks.exchange(id);
}

/**
 * Labels as alternating keys and values. Never throws: what cannot be read is left out.
 * @param {Labels | null | undefined} labels
 * @returns {string[]}
 */
function pairsOf(labels) {
  /** @type {string[]} */
  const pairs = [];
  if (labels === null || typeof labels !== 'object') return pairs;
  try {
    for (const [key, value] of labels instanceof Map ? labels : Object.entries(labels)) {
      if (value === undefined || value === null) continue;
      try {
        const text = typeof value === 'string' ? value : String(value);
        pairs.push(String(key), text);
      } catch {
        // A value whose text throws is left out.
      }
    }
  } catch {
    // A map that throws when it is listed has the labels it gave so far.
  }
  return pairs;
}

/**
 * The id of `labels` on top of the context `parent`; the parent itself when the labels cannot be had.
 * @param {number} parent
 * @param {Labels | null | undefined} labels
 */
function child(parent, labels) {
  try {
    const pairs = pairsOf(labels);
    return pairs.length === 0 ? parent : native.childContext(parent, pairs);
  } catch {
    return parent;
  }
}

/**
 * The id of the labels of `parent` under a span, or under none when its ids are empty. Within one trace the local root stays
 * what it was; the first span of a trace in this process is its own, unless it stands for one elsewhere.
 * @param {number} parent
 * @param {string} traceId
 * @param {string} spanId
 * @param {boolean} isRemote
 */
function linked(parent, traceId, spanId, isRemote) {
  const row = native.describeContext(parent);
  if (row.traceId === traceId && row.spanId === spanId) return parent;
  const inherited = row.traceId === traceId ? row.localRootSpanId : '';
  return native.openContext(row.labelSet, traceId, spanId, inherited || (isRemote ? '' : spanId));
}

/**
 * Calls `fn(...args)` with labels on its samples, and returns what it returns. The labels follow promises, timers and
 * callbacks that `fn` starts, nest, and end when `fn` ends, also by an exception. `trace_id` and `span_id` become the link
 * of the samples.
 * @template {any[]} A
 * @template R
 * @param {Labels} labels
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
function tagWrapper(labels, fn, ...args) {
  return run(child(current(), labels), fn, args);
}

/**
 * Replaces the labels from here on, in what runs here and in what it starts. Prefer `tagWrapper`, which ends by itself.
 * @param {Labels} labels
 */
function setLabels(labels) {
  try {
    const { traceId, spanId, localRootSpanId } = native.describeContext(current());
    const bare = native.openContext(0, traceId, spanId, localRootSpanId);
    enter(child(bare, labels));
  } catch {
    // The program runs on with the labels it had.
  }
}

/**
 * The labels that are current here.
 * @returns {Record<string, string>}
 */
function getLabels() {
  /** @type {Record<string, string>} */
  const labels = {};
  try {
    const pairs = native.describeContext(current()).labels;
    for (let at = 0; at + 1 < pairs.length; at += 2) {
      Object.defineProperty(labels, pairs[at], { value: pairs[at + 1], enumerable: true, writable: true, configurable: true });
    }
  } catch {
    // No labels are known.
  }
  return labels;
}

/**
 * `fn`, bound to the labels and the span that are current here, wherever it is called later.
 * @template {(...args: any[]) => any} F
 * @param {F} fn
 * @returns {F}
 */
function bind(fn) {
  const id = current();
  /**
   * @this {any}
   * @param {any[]} args
   */
  function bound(...args) {
    return run(id, () => fn.apply(this, args), []);
  }
  Object.defineProperty(bound, 'length', { value: fn.length, configurable: true });
  Object.defineProperty(bound, 'name', { value: fn.name, configurable: true });
  return /** @type {F} */ (/** @type {unknown} */ (bound));
}

module.exports = { beginFollowing, current, run, enter, child, linked, tagWrapper, setLabels, getLabels, bind };
