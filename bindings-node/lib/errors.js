'use strict';
// The one error of the package. Only `start` and `update` throw it; after `start` nothing else does.

/** The profiler cannot start, or cannot accept a new setting. */
class SpanprofError extends Error {
  /**
   * @param {string} message
   * @param {string} [kind] one of a closed set (`invalid_config`, `unsupported_runtime`, …)
   * @param {string} [hint] how to fix it
   */
  constructor(message, kind = '', hint = '') {
    super(hint === '' ? message : `${message}\nhint: ${hint}`);
    this.name = 'SpanprofError';
    this.kind = kind;
    this.hint = hint;
  }

  /**
   * An error for an options object whose property access threw.
   * @param {unknown} error
   */
  static unreadable(error) {
    return new SpanprofError(`the options could not be read: ${textOf(error)}`, 'invalid_config', 'pass a plain object');
  }

  /**
   * Converts an error of the native module.
   * @param {unknown} error
   */
  static of(error) {
    if (error instanceof SpanprofError) return error;
    const text = textOf(error);
    try {
      const { message, kind, hint } = JSON.parse(text);
      return new SpanprofError(String(message), String(kind), String(hint));
    } catch {
      return new SpanprofError(text);
    }
  }
}

/**
 * @param {any} error
 * @returns {string}
 */
function textOf(error) {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return 'an error without a message';
  }
}

module.exports = { SpanprofError };
