'use strict';
// Options as JSON for the native module, which translates keys. Here only what JSON has no form for: paths as URLs, maps,
// numbers that are none. No policy: what a key means, its bounds and what is said of an unknown one is the core's.

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
  return Object.fromEntries(entries.map(([key, inner]) => [String(key), plain(inner, depth + 1)]));
}

/**
 * The code layer of the configuration as JSON.
 * @param {object | null | undefined} options
 * @returns {string}
 */
function toJson(options) {
  return JSON.stringify(plain(options ?? {}, 0));
}

module.exports = { toJson };
