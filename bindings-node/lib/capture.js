'use strict';
// `capture`: the profile of one piece of work, such as one request, beside the continuous profile.

const scope = require('./scope.js');
const { native } = require('./native.js');
const { delivery } = require('./lifecycle.js');
const { SpanprofError } = require('./errors.js');
const { activeSpan } = require('./opentelemetry.js');

/**
 * The result and the profile of captured work.
 * @template R
 */
class Capture {
  #profile;

  /**
   * @param {R} result
   * @param {import('./noop.js').NativeProfile} profile
   */
  constructor(result, profile) {
    /** The value of the captured function, or of its promise. */
    this.result = result;
    this.#profile = profile;
  }

  /**
   * The profile as gzip-compressed pprof, with labels and span links.
   * @returns {Buffer}
   */
  pprof() {
    return this.#profile.pprof();
  }

  /**
   * A flame graph: one self-contained HTML page.
   * @returns {string}
   */
  flamegraph() {
    return this.#profile.flamegraph();
  }

  /**
   * Names of the profile types that have samples.
   * @returns {string[]}
   */
  types() {
    return this.#profile.types();
  }

  /**
   * Writes a file; its extension selects the format: `.html`, `.pb.gz` or `.folded`. The active OpenTelemetry span gets the
   * attributes `profile.file` and `profile.type`. Throws `SpanprofError` when the file cannot be written.
   * @param {string} path
   */
  save(path) {
    try {
      this.#profile.save(String(path));
    } catch (error) {
      throw SpanprofError.of(error);
    }
    const span = activeSpan();
    span?.setAttribute('profile.file', String(path));
    const types = native.profileTypes();
    if (types.length > 0) span?.setAttribute('profile.type', types);
  }

  /**
   * Sends the profile to the destinations of the running profiler, as types that begin with `capture_`; returns whether it was
   * delivered within `timeout` seconds. Later it is still sent, or counted as lost.
   * @param {number} [timeout] seconds; `stopTimeout` by default
   * @returns {Promise<boolean>}
   */
  send(timeout) {
    return delivery((milliseconds) => this.#profile.send(milliseconds), timeout);
  }
}

/**
 * Calls `fn(...args)` and resolves to a {@link Capture} with its result and its own profile: the samples of this thread meanwhile,
 * and of the asynchronous work that it starts. Rejects if `fn` throws or rejects.
 * @template {any[]} A
 * @template R
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {Promise<Capture<Awaited<R>>>}
 */
async function capture(fn, ...args) {
  const number = native.beginCapture();
  try {
    const result = await scope.run(native.captureContext(scope.current(), number), fn, args);
    return new Capture(result, await native.endCapture(number));
  } finally {
    native.discardCapture(number);
  }
}

module.exports = { capture, Capture };
