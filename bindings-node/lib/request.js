'use strict';
// Labels of a request for both middlewares.

const { native } = require('./native.js');
const { current } = require('./scope.js');

const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE']);
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}/;

/**
 * Labels of a request, with the ids of its `traceparent` header when no span of this process is current.
 * @param {{method?: string, headers?: Record<string, any>}} request
 * @returns {Record<string, string>}
 */
function requestLabels(request) {
  /** @type {Record<string, string>} */
  const labels = {};
  const { method, headers } = request;
  if (method) labels['http.request.method'] = METHODS.has(method) ? method : '_OTHER';
  const traceparent = headers?.traceparent;
  const found = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent) : null;
  const id = current();
  if (found !== null && (id === 0 || native.describeContext(id).traceId === '')) {
    [, labels.trace_id, labels.span_id] = found;
  }
  return labels;
}

module.exports = { requestLabels };
