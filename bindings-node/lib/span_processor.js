'use strict';
// OpenTelemetry span processor: names the profile of each local root span, and reports its end, for counts of
// requests and errors and for tail-based retention, and the calls that it awaits. `tracer_provider` registers it; samples are linked to the active span without it
// (`opentelemetry`). No module of OpenTelemetry is loaded.

const { native } = require('./native.js');
const scope = require('./scope.js');

/** `SpanKind` of spans with a remote parent. */
const SERVER = 1;
const CONSUMER = 4;
/** `SpanKind` of calls of other services. */
const CLIENT = 2;
const PRODUCER = 3;
/** `SpanStatusCode.ERROR`. */
const ERROR = 2;

/** Local root spans and calls that began; a program may have several processors. @type {WeakSet<object>} */
const open = new WeakSet();
/** The last adopted resource of the SDK. @type {any} */
let adopted;

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
 * Whether a span is a call of another service. One without a parent is no request.
 * @param {any} span
 */
function isCall({ kind }) {
  return kind === CLIENT || kind === PRODUCER;
}

/**
 * The name of a call. Spans of HTTP clients are named by the method alone.
 * @param {any} span
 */
function nameOfCall({ name, attributes }) {
  const address = attributes['server.address'] ?? attributes['net.peer.name'];
  const isMethod = name === (attributes['http.request.method'] ?? attributes['http.method']);
  return isMethod && address !== undefined ? `${name} ${address}` : String(name);
}

/**
 * Sets `pyroscope.profile.id` and `profile.type` on every local root span, and reports its duration, its route, its status
 * and the calls that it awaited. Added to the program's tracer provider by `start`; where that is not possible:
 * `new NodeTracerProvider({ spanProcessors: [new SpanProcessor()] })`.
 */
class SpanProcessor {
  /** @param {any} span */
  onStart(span) {
    try {
      const isRoot = isLocalRoot(span);
      if (!(isRoot || isCall(span)) || open.has(span) || !native.isRunning()) return;
      open.add(span);
      const { traceId, spanId } = span.spanContext();
      if (!isRoot) {
        native.beginClientSpan(scope.current(), spanId);
        return;
      }
      adoptResource(span.resource);
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
      if (!open.delete(span)) return;
      const { traceId, spanId } = span.spanContext();
      const milliseconds = span.duration[0] * 1e3 + span.duration[1] / 1e6;
      if (isCall(span)) {
        native.endClientSpan(spanId, nameOfCall(span), milliseconds);
        return;
      }
      const { 'http.route': route, 'http.request.method': method, 'http.method': oldMethod } = span.attributes;
      native.endRootSpan(traceId, spanId, milliseconds, String(span.name), String(method ?? oldMethod ?? ''), String(route ?? ''), span.status.code === ERROR);
    } catch {
      // The request is released undecided.
    }
  }

  /** @returns {Promise<void>} */
  async forceFlush() {}

  /** @returns {Promise<void>} */
  async shutdown() {}
}

/**
 * The attributes of the SDK's resource become those of the profiles.
 * @param {any} resource
 */
function adoptResource(resource) {
  if (!resource || resource === adopted) return;
  adopted = resource;
  adoptDetected(resource);
}

/** @param {any} resource some of whose attributes may still be detected */
async function adoptDetected(resource) {
  try {
    if (resource.asyncAttributesPending) await resource.waitForAsyncAttributes();
    const values = Object.entries(resource.attributes).filter(([, value]) => typeof value !== 'object');
    native.adoptResource(values.flatMap(([key, value]) => [key, String(value)]));
  } catch {
    // The profiles keep their own resource.
  }
}

module.exports = { SpanProcessor, adoptResource };
