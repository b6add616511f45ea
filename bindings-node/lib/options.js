'use strict';
// Options as JSON for the native module, which translates keys: here only what JSON has no form for, paths as URLs, maps,
// numbers that are none, and the one option that native code cannot use. No policy for the rest: what a key means, its bounds
// and the message about an unknown one come from the core.

const { SpanprofError } = require('./errors.js');
const { canListen } = require('./signals.js');

/**
 * @param {unknown} value
 * @param {number} depth
 * @returns {unknown}
 */
function plain(value, depth) {
  switch (typeof value) {
    case 'boolean':
    case 'string':
      return value;
    case 'number':
      // JSON has no such numbers; as text the core names them in its error.
      return Number.isFinite(value) ? value : String(value);
    case 'undefined':
      return null;
    case 'object':
      break;
    default:
      return String(value);
  }
  if (value === null) return null;
  if (value instanceof URL || depth > 6) return String(value);
  if (Array.isArray(value)) return value.map((item) => plain(item, depth + 1));
  /** @type {[string, unknown][]} */
  const entries = value instanceof Map ? [...value] : Object.entries(/** @type {object} */ (value));
  // A tag or header without a value, say a variable that is not set, is none.
  const given = depth === 0 ? entries : entries.filter(([, inner]) => inner !== undefined && inner !== null);
  return Object.fromEntries(given.map(([key, inner]) => [String(key), plain(inner, depth + 1)]));
}

/**
 * @param {unknown} signals
 * @returns {readonly string[]}
 */
function checkedSignals(signals) {
  if (Array.isArray(signals) && signals.every(canListen)) return signals;
  const message = `stopOnSignals must be a list of signals such as ['SIGTERM', 'SIGINT'], got ${String(signals)}`;
  throw new SpanprofError(message, 'invalid_config', 'docs/node.md describes the option');
}

/**
 * The code layer of the configuration as JSON, and the option that only this package reads. Throws `SpanprofError` only.
 * @param {object | null | undefined} options
 * @returns {{json: string, stopOnSignals: readonly string[]}}
 */
function read(options) {
  try {
    const { stopOnSignals, ...rest } = /** @type {Record<string, unknown>} */ (options ?? {});
    return { json: JSON.stringify(plain(rest, 0)), stopOnSignals: checkedSignals(stopOnSignals ?? []) };
  } catch (error) {
    throw error instanceof SpanprofError ? error : SpanprofError.unreadable(error);
  }
}

/**
 * The same of `update`, which changes keys of the core alone.
 * @param {object | null | undefined} options
 * @returns {string}
 */
function toJson(options) {
  try {
    return JSON.stringify(plain(options ?? {}, 0));
  } catch (error) {
    throw SpanprofError.unreadable(error);
  }
}

module.exports = { read, toJson };
