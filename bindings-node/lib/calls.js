'use strict';
// Calls of other services that a request awaits, without an SDK: by `node:http`, `fetch` and undici. With a span processor, the SDK's
// client spans are the calls.
//
// # What Node.js offers
// | source | relied on | versions |
// |---|---|---|
// | `node:_http_client` | channel `http.client.request.start`; `close` of the request follows its response | Node.js 18–26 |
// | undici | channels `undici:request:create`, `undici:request:trailers`, `undici:request:error` | 5–8, and `fetch` of Node.js 18–26 |

const { native } = require('./native.js');
const scope = require('./scope.js');
const { openRoots } = require('./request.js');

/** Calls by the client's request. @type {WeakMap<object, {id: string, name: string, began: number}>} */
const calls = new WeakMap();
let count = 0;

/**
 * A call begins, if a request that the profiler reports makes it.
 * @param {any} request
 * @param {unknown} address
 */
function begin(request, address) {
  const current = scope.current();
  if (current === 0 || !openRoots.has(native.describeContext(current).localRootSpanId)) return;
  count += 1;
  const id = count.toString(16).padStart(16, '0');
  calls.set(request, { id, name: `${request.method} ${String(address).replace(/^\w+:\/\//, '')}`, began: native.monotonicMilliseconds() });
  native.beginClientSpan(current, id);
}

/** @param {any} request */
function end(request) {
  const call = calls.get(request);
  if (call === undefined || !calls.delete(request)) return;
  native.endClientSpan(call.id, call.name, native.monotonicMilliseconds() - call.began);
}

/** @param {any} request of `node:http` */
function beginOfHttp(request) {
  begin(request, request.getHeader('host'));
  if (calls.has(request)) request.once('close', () => end(request));
}

module.exports = { begin, beginOfHttp, end };
