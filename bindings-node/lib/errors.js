'use strict';
// The one error of the package. Only `start` and `update` throw it; after `start` nothing else does.

/** The profiler cannot start, or cannot take a new setting. */
class SpanprofError extends Error {
  /**
   * @param {string} message
   * @param {string} [kind] one of a closed set of words (`invalid_config`, `unsupported_runtime`, …)
   * @param {string} [hint] the way out
   */
  constructor(message, kind = '', hint = '') {
    super(hint === '' ? message : `${message}\nhint: ${hint}`);
    this.name = 'SpanprofError';
    this.kind = kind;
    this.hint = hint;
  }

  /**
   * What the native module threw, as ours.
   * @param {any} error
   */
  static of(error) {
    return new SpanprofError(String(error?.message ?? error), String(error?.kind ?? ''), String(error?.hint ?? ''));
  }
}

module.exports = { SpanprofError };
