'use strict';
// OpenTelemetry span processor: names the profile of each local root span, and reports its end, for counts of
// requests and errors and for tail-based retention. Samples are linked to the active span without it (`opentelemetry`). No module of OpenTelemetry is loaded.

const { native } = require('./native.js');
const scope = require('./scope.js');

/** `SpanKind` of spans with a remote parent. */
const SERVER = 1;
const CONSUMER = 4;
/** `SpanStatusCode.ERROR`. */
const ERROR = 2;

/**
 * Whether a span has no parent in this process.
 * @param {any} span of version 1 or 2 of the SDK
 */
function isLocalRoot(span) {
  if (span.parentSpanContext !== undefined) return span.parentSpanContext.isRemote === true;
  // Version 1 of the SDK does not report whether the parent is remote.
  return span.parentSpanId === undefined || span.kind === SERVER || span.kind === CONSUMER;
}

/**
 * Sets `pyroscope.profile.id` and `profile.type` on every local root span, and reports its duration and its status:
 * `new NodeTracerProvider({ spanProcessors: [new SpanProcessor()] })`.
 */
class SpanProcessor {
  /** @param {any} span */
  onStart(span) {
    try {
      if (!isLocalRoot(span)) return;
      const { traceId, spanId } = span.spanContext();
      native.beginRootSpan(scope.current(), traceId, spanId);
      span.setAttribute('pyroscope.profile.id', spanId);
      const types = native.profileTypes();
      if (types.length > 0) span.setAttribute('profile.type', types);
    } catch {
      // The span has no attributes.
    }
  }

  /** @param {any} span */
  onEnd(span) {
    try {
      if (!isLocalRoot(span)) return;
      const { traceId, spanId } = span.spanContext();
      const milliseconds = span.duration[0] * 1e3 + span.duration[1] / 1e6;
      native.endRootSpan(traceId, spanId, milliseconds, String(span.name), span.status.code === ERROR);
    } catch {
      // The request is released undecided.
    }
  }

  /** @returns {Promise<void>} */
  async forceFlush() {}

  /** @returns {Promise<void>} */
  async shutdown() {}
}

module.exports = { SpanProcessor };
