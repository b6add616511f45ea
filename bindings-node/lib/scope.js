'use strict';
// Labels of a scope: one AsyncLocalStorage that holds the id of a context, 0 or nothing for none. What an id stands for is
// the core's. From Node 24 on the profiler reads the storage by itself; before, `hooks` tells it at each switch.

const { AsyncLocalStorage } = require('node:async_hooks');
const { native } = require('./native.js');

/**
 * Names and values, as an object or a map. An `object`, so that an interface of TypeScript is one too.
 * @typedef {Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown> | object} Labels
 */

/** @type {AsyncLocalStorage<number>} */
const storage = new AsyncLocalStorage();
let entered = false;
let told = false;
/** What is told at each switch, where the profiler does not read the storage. @type {typeof import('./hooks.js') | undefined} */
let hooks;

/** Makes the storage known, the first time that a scope is entered while profiling: before, nobody asks for it. */
function tell() {
  entered = true;
  if (!native.isRunning()) return;
  told = true;
  try {
    native.registerThread();
    // Two numbers that no context has: found twice, the place is certain.
    const found = [1_234_567, 7_654_321].map((probe) => storage.run(probe, () => native.registerStorage(storage, probe)));
    if (found[1]) return;
    const needed = require('./hooks.js');
    needed.install(storage);
    hooks = needed;
  } catch {
    hooks = undefined;
  }
}

/** Profiling begins: scopes that were entered before go on in its samples. */
function beginFollowing() {
  if (entered && !told) tell();
}

/**
 * Makes `id` the one that samples carry from here on, where that is to be told.
 * @param {number} id
 */
function follow(id) {
  hooks?.exchange(id);
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
  if (hooks === undefined) {
    try {
      return storage.run(id, fn, ...args);
    } finally {
      // Profiling began meanwhile.
      follow(current());
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
  follow(id);
}

let refusalWarned = false;

/**
 * A label's value as text: of primitive values, and of objects that have a text of their own, such as a URL, a
 * date or an identifier of a database. What has none (`[object Object]`) and a function is no value.
 * @param {string} key
 * @param {unknown} value
 * @returns {string | undefined}
 */
function textOf(key, value) {
  if (typeof value === 'string') return value;
  if (typeof value !== 'function') {
    const text = String(value);
    if (typeof value !== 'object' || !/^\[object [^\]]*\]$/.test(text)) return text;
  }
  if (!refusalWarned) {
    refusalWarned = true;
    const kind = typeof value === 'object' ? Object.prototype.toString.call(value) : 'a function';
    require('./host_log.js').say('warning', `spanprof: the label '${key}' is left out: its value must be a string, a number or a boolean, got ${kind}; ` +
      'pass the field that is meant. Further such labels are left out without a warning.');
  }
  return undefined;
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
        const text = textOf(String(key), value);
        if (text !== undefined) pairs.push(String(key), text);
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
  try {
    Object.defineProperty(bound, 'length', { value: fn.length, configurable: true });
    Object.defineProperty(bound, 'name', { value: fn.name, configurable: true });
  } catch {
    // A proxy that refuses: the bound function keeps names of its own.
  }
  return /** @type {F} */ (/** @type {unknown} */ (bound));
}

module.exports = { beginFollowing, current, run, enter, child, linked, tagWrapper, setLabels, getLabels, bind };
