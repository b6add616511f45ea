'use strict';
// Options as JavaScript writes them into the core's keys. No policy: what a key means, its bounds and what is said of an
// unknown one is the core's.

/** Keys whose value is a map with keys of the user's own. */
const MAPS = new Set(['resource_attributes', 'tags', 'headers']);

/** @param {string} key */
function snakeCase(key) {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/**
 * @param {unknown} value
 * @param {number} depth
 * @param {boolean} translate whether keys inside are ours
 * @returns {unknown}
 */
function plain(value, depth, translate) {
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
  if (Array.isArray(value)) return value.map((item) => plain(item, depth + 1, translate));
  /** @type {[string, unknown][]} */
  const entries = value instanceof Map ? [...value] : Object.entries(/** @type {object} */ (value));
  return Object.fromEntries(
    entries.map(([key, inner]) => {
      const ours = translate ? snakeCase(String(key)) : String(key);
      return [ours, plain(inner, depth + 1, translate && !MAPS.has(ours))];
    }),
  );
}

/**
 * The code layer of the configuration as JSON.
 * @param {object | null | undefined} options
 * @returns {string}
 */
function toJson(options) {
  return JSON.stringify(plain(options ?? {}, 0, true));
}

module.exports = { toJson, snakeCase };
