'use strict';
// Labels of a scope: one AsyncLocalStorage with the context id, 0 or nothing for none. The core resolves ids. From Node.js 24 on
// the profiler reads the storage itself; before, `hooks` reports the id at each switch.

const { AsyncLocalStorage } = require('node:async_hooks');
const { native } = require('./native.js');

/**
 * Names and values, as an object or a map. Declared as `object`, so that TypeScript interfaces are accepted.
 * @typedef {Readonly<Record<string, unknown>> | ReadonlyMap<string, unknown> | object} Labels
 */

/** @type {AsyncLocalStorage<number>} */
const storage = new AsyncLocalStorage();
let entered = false;
let registered = false;
/** Reports each switch, where the profiler does not read the storage. @type {typeof import('./hooks.js') | undefined} */
let hooks;

/** Registers the storage when a scope is first entered while profiling. */
function registerStorage() {
  entered = true;
  if (!native.isRunning()) return;
  registered = true;
  try {
    native.registerThread();
    // Two numbers that are no context ids: if both are found, the location is verified.
    const verified = [1_234_567, 7_654_321].map((probe) => storage.run(probe, () => native.registerStorage(storage, probe)));
    if (verified[1]) return;
    const loaded = require('./hooks.js');
    loaded.install(storage);
    hooks = loaded;
  } catch {
    hooks = undefined;
  }
}

/** Profiling started: registers the storage if a scope was entered before. */
function profilingStarted() {
  if (entered && !registered) registerStorage();
}

/**
 * Reports `id` as the current one, where the profiler does not read the storage.
 * @param {number} id
 */
function reportCurrent(id) {
  hooks?.exchange(id);
}

/** The current context id; 0 for none. */
function current() {
  return storage.getStore() ?? 0;
}

/**
 * Runs `fn`, and the asynchronous work that it starts, under the context `id`.
 * @template {any[]} A
 * @template R
 * @param {number} id
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
function run(id, fn, args) {
  if (!registered) registerStorage();
  if (hooks === undefined) {
    try {
      return storage.run(id, fn, ...args);
    } finally {
      // Profiling may have started during the call.
      reportCurrent(current());
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
 * Makes `id` current for the rest of the synchronous execution, and the asynchronous work that it starts.
 * @param {number} id
 */
function enter(id) {
  if (!registered) registerStorage();
  storage.enterWith(id);
  reportCurrent(id);
}

let warned = false;

/**
 * A label's value as text. Primitive values, and objects with a `toString` of their own, such as URLs, dates and database ids,
 * have one. Functions and plain objects (`[object Object]`) have none.
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
  if (!warned) {
    warned = true;
    const kind = typeof value === 'object' ? Object.prototype.toString.call(value) : 'a function';
    require('./host_log.js').log('warning', `spanprof: the label '${key}' is left out: its value must be a string, a number or a boolean, got ${kind}; ` +
      'pass the field that is meant. Further such labels are left out without a warning.');
  }
  return undefined;
}

/**
 * Labels as alternating keys and values. Never throws: unreadable labels are left out.
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
        // A value whose `toString` throws is left out.
      }
    }
  } catch {
    // A map whose iteration throws keeps the labels read so far.
  }
  return pairs;
}

const PAIRS = Symbol('pairs');
const ALONE = Symbol('alone');

/**
 * Labels converted once; made by {@link prepareLabels}. The labels are its properties, as text, and cannot change.
 */
class PreparedLabels {
  /** @param {string[]} pairs alternating keys and values */
  constructor(pairs) {
    // A context with a span link may expire; one of labels only is permanent.
    const isLink = pairs.some((text, i) => i % 2 === 0 && (text === 'trace_id' || text === 'span_id'));
    /** @type {string[]} */
    this[PAIRS] = pairs;
    /** The context id of these labels alone. @type {number | undefined} */
    this[ALONE] = isLink || pairs.length === 0 ? undefined : native.childContext(0, pairs);
    for (const hidden of [PAIRS, ALONE]) Object.defineProperty(this, hidden, { enumerable: false });
    for (let i = 0; i < pairs.length; i += 2) {
      Object.defineProperty(this, pairs[i], { value: pairs[i + 1], enumerable: true, configurable: true });
    }
    Object.freeze(this);
  }
}

/**
 * Prepared labels: an immutable label set, converted once, for `tagWrapper` and every other function that takes labels. The limits
 * of labels apply when it is made, before or after `start`. Never throws: unreadable labels are left out.
 * @param {Labels} labels
 * @returns {Readonly<Record<string, string>>}
 */
function prepareLabels(labels) {
  return /** @type {any} */ (new PreparedLabels(pairsOf(labels)));
}

/**
 * The id of the context `parent` with `labels` added; the parent itself on an error.
 * @param {number} parent
 * @param {Labels | null | undefined} labels
 */
function child(parent, labels) {
  try {
    const prepared = labels instanceof PreparedLabels ? labels : undefined;
    if (prepared !== undefined && parent === 0 && prepared[ALONE] !== undefined) return prepared[ALONE];
    const pairs = prepared?.[PAIRS] ?? pairsOf(labels);
    return pairs.length === 0 ? parent : native.childContext(parent, pairs);
  } catch {
    return parent;
  }
}

/**
 * Calls `fn(...args)` with labels on its samples, and returns its result. The labels follow promises, timers and callbacks that
 * `fn` starts, can be nested, and end when `fn` returns or throws. `trace_id` and `span_id` become the link of the samples.
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
 * Replaces the labels for the rest of the synchronous execution, and the asynchronous work that it starts. Prefer `tagWrapper`.
 * @param {Labels} labels
 */
function setLabels(labels) {
  try {
    enter(child(native.contextWithoutLabels(current()), labels));
  } catch {
    // The previous labels stay.
  }
}

/**
 * The current labels.
 * @returns {Record<string, string>}
 */
function getLabels() {
  /** @type {Record<string, string>} */
  const labels = {};
  try {
    const pairs = native.describeContext(current()).labels;
    for (let i = 0; i + 1 < pairs.length; i += 2) {
      Object.defineProperty(labels, pairs[i], { value: pairs[i + 1], enumerable: true, writable: true, configurable: true });
    }
  } catch {
    // Without labels.
  }
  return labels;
}

/**
 * `fn`, bound to the current labels and span: every later call, and the asynchronous work that it starts, runs under them instead of
 * its caller's. Outside all scopes it is bound to no labels. A generator function is bound for the call that creates the generator
 * only, as with OpenTelemetry's `context.bind`: the body runs under the labels of the code that resumes it.
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
    // A proxy may refuse: the bound function keeps its own name and length.
  }
  return /** @type {F} */ (/** @type {unknown} */ (bound));
}

module.exports = { profilingStarted, current, run, enter, child, tagWrapper, prepareLabels, setLabels, getLabels, bind };
