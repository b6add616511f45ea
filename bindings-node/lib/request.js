'use strict';
// A request in the middlewares: the labels of its samples, and the report of its end.

const { native } = require('./native.js');
const scope = require('./scope.js');

const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE']);
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

/**
 * Labels of a request, with the trace of its `traceparent` header when no span of this process is current.
 * @param {{method?: string, headers?: Record<string, any>}} request
 * @returns {Record<string, string>}
 */
function requestLabels(request) {
  /** @type {Record<string, string>} */
  const labels = {};
  const { method, headers } = request;
  if (method) labels['http.request.method'] = METHODS.has(method) ? method : '_OTHER';
  const traceparent = headers?.traceparent;
  const parent = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent) : null;
  const id = scope.current();
  if (parent !== null && (id === 0 || native.describeContext(id).traceId === '')) {
    [, labels.trace_id] = parent;
  }
  return labels;
}

/** A request from its begin on. Its end is reported once, unless a span processor reports it. */
class MiddlewareRequest {
  /**
   * @param {any} request as Node.js passes it
   * @param {any} response
   * @param {string} [route] template of the path, if it is known already
   */
  constructor(request, response, route) {
    const labels = requestLabels(request);
    if (route !== undefined) labels['http.route'] = route;
    const outer = scope.current();
    /** The request's context. @type {number} */
    this.id = scope.child(outer, labels);
    /** @type {string | undefined} */
    this.route = route;
    const localRoot = native.beginRequest(outer, labels.trace_id ?? '', '');
    if (localRoot === '') return;
    this.id = native.contextWithLocalRoot(this.id, localRoot);
    const began = native.monotonicMilliseconds();
    let isOpen = true;
    const end = () => {
      if (!isOpen) return;
      isOpen = false;
      const endpoint = [labels['http.request.method'], this.route].filter(Boolean).join(' ');
      native.endRequest(localRoot, native.monotonicMilliseconds() - began, endpoint, response.statusCode >= 500);
    };
    response.once('finish', end);
    // Of a response that its client did not wait for.
    response.once('close', end);
  }
}

module.exports = { MiddlewareRequest };
