'use strict';
// One profiler per process and JavaScript thread: the copy of the package that loads its native module first. A second copy (the
// application's own beside a preloaded one, or a nested dependency) loads no native module and uses the functions of the first.
// Not here: copies of the native library outside npm packages (native core).

const path = require('node:path');
const { isMainThread } = require('node:worker_threads');

/** The directory of this file; empty in an ESM bundle, which has none. */
const HERE = typeof __dirname === 'string' ? __dirname : '';
/** Whether a bundler has moved this module into another file. */
const IS_BUNDLED = typeof __filename !== 'string' || path.basename(__filename) !== 'copies.js';

/** Registry of the first copy. Every version of the package keeps the form of {@link Copy}. */
const REGISTRY = Symbol.for('spanprof.copy');

/**
 * @typedef {object} Copy
 * @property {string} folder of its `lib`
 * @property {string} version
 * @property {() => boolean} isRunning
 * @property {(module: 'index' | 'lifecycle' | 'pprof' | 'pyroscope') => any} load
 */

let warned = false;

/** @param {Copy} own */
function register(own) {
  try {
    // Not enumerable: programs and test runners compare the keys of the global object.
    Object.defineProperty(globalThis, REGISTRY, { value: own, configurable: true });
  } catch {
    // The program froze its globals; `start` of a second copy declines.
  }
}

/**
 * The copy that was loaded before this one, if any.
 * @returns {Copy | undefined}
 */
function other() {
  const first = /** @type {any} */ (globalThis)[REGISTRY];
  return typeof first?.load === 'function' && first.folder !== HERE ? first : undefined;
}

/** @param {Copy} first */
function warnOnce(first) {
  // Worker threads load what the main thread has loaded.
  if (warned || !isMainThread) return;
  warned = true;
  require('./primordials.js').emitWarning(
    `two copies of spanprof are loaded: version ${first.version} from ${first.folder} came first and profiles; the one from ` +
      `${HERE} does nothing by itself and uses the first one. Install one copy, and load \`spanprof/register\` from it.`,
    'SPANPROF_SECOND_COPY',
  );
}

/**
 * The exports of a module of this package: `own`, or the functions of the same names of the first copy.
 * @template {Record<string, any>} T
 * @param {'index' | 'pprof' | 'pyroscope'} module
 * @param {T} own
 * @returns {T}
 */
function exported(module, own) {
  const first = other();
  if (first !== undefined) {
    warnOnce(first);
    try {
      const theirs = first.load(module);
      // A name that only this version has is kept; without a native module it does nothing.
      for (const name of Object.keys(own)) if (name in theirs) /** @type {any} */ (own)[name] = theirs[name];
      const { start } = own;
      // A running profiler keeps its configuration, as the warning states.
      if (typeof start === 'function') /** @type {any} */ (own).start = (/** @type {any[]} */ ...args) => first.isRunning() || start(...args);
    } catch {
      // Every function does nothing.
    }
  }
  // `import x from` compiled to CommonJS reads it.
  Object.defineProperty(own, 'default', { value: own });
  return own;
}

module.exports = { HERE, IS_BUNDLED, register, other, warnOnce, exported };
