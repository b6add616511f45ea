'use strict';
// Converts options into JSON for the native module, which translates keys. Handled here: values without a JSON form (URLs, maps,
// non-finite numbers), and the one option that native code cannot use. Defaults, bounds and messages come from the core.

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
      // JSON has no such numbers; as text they appear in the core's error.
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
  // A tag or header without a value, such as an unset variable, is left out.
  const present = depth === 0 ? entries : entries.filter(([, inner]) => inner !== undefined && inner !== null);
  return Object.fromEntries(present.map(([key, inner]) => [String(key), plain(inner, depth + 1)]));
}

/**
 * @param {unknown} signals
 * @returns {readonly string[]}
 */
function checkedSignals(signals) {
  if (Array.isArray(signals) && signals.every(canListen)) return signals;
  const message = `stopOnSignals must be a list of signals such as ['SIGTERM', 'SIGINT'], got ${String(signals)}`;
  throw new SpanprofError(message, 'invalid_config', 'docs/reference/node.md describes the option');
}

/**
 * The options as JSON for the core, and the option that only this package reads. Throws only `SpanprofError`.
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
 * The JSON of the settings for `update`, which changes keys of the core only.
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
