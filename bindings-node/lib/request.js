'use strict';
// A request of a web server: the labels of its samples, and the report of its end. One per request, which the middlewares and `servers`
// share.

const { native } = require('./native.js');
const scope = require('./scope.js');

const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE']);
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;
/** The {@link ServerRequest} of Node's request. */
const REQUEST = Symbol('spanprof.request');
/** Local roots of the open requests whose end is reported here. @type {Set<string>} */
const openRoots = new Set();

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
  if (parent !== null && (id === 0 || native.describeContext(id).traceId === '')) [, labels.trace_id] = parent;
  return labels;
}

/**
 * The pattern of a route of Express.
 * @param {any} request
 * @param {any} route
 * @returns {string | undefined}
 */
function patternOf(request, route) {
  return typeof route?.path === 'string' ? `${request.baseUrl ?? ''}${route.path}` : undefined;
}

/** A request from its begin on. Its end is reported once, by the profiler or by a span processor. */
class ServerRequest {
  /**
   * @param {any} request as Node.js passes it
   * @param {any} response
   * @param {boolean} hasLabels whether its samples have labels, also if a span processor reports its end
   */
  constructor(request, response, hasLabels) {
    const labels = requestLabels(request);
    this.outer = scope.current();
    /** The local root of its contexts; empty if a span processor or another middleware reports its end. */
    this.localRoot = native.beginRequest(this.outer, labels.trace_id ?? '');
    this.hasLabels = hasLabels || this.localRoot !== '';
    /** The request's context. @type {number} */
    this.id = this.hasLabels ? scope.child(this.outer, labels) : this.outer;
    if (this.localRoot !== '') {
      this.id = native.contextInRequest(this.id, this.localRoot);
      openRoots.add(this.localRoot);
    }
    this.method = labels['http.request.method'];
    /** Returns the template of the path, once it is known. @type {() => unknown} */
    this.route = () => patternOf(request, request.route);
    this.isNamed = false;
    request[REQUEST] = this;
    if (this.hasLabels) this.carryTo(request);
    const began = native.monotonicMilliseconds();
    let isOpen = true;
    const end = () => {
      if (!isOpen) return;
      isOpen = false;
      this.end(native.monotonicMilliseconds() - began, response);
    };
    response.once('finish', end);
    // Of a response that its client did not wait for.
    response.once('close', end);
  }

  /**
   * @param {number} milliseconds
   * @param {any} response
   */
  async end(milliseconds, response) {
    try {
      openRoots.delete(this.localRoot);
      if (this.localRoot === '') {
        if (!this.isNamed) this.name();
        return;
      }
      const endpoint = this.endpoint();
      // A span inside of the request ends with the response's last event, `close`, and may have a better name.
      await undefined;
      native.endRequest(this.localRoot, milliseconds, endpoint, response.statusCode >= 500);
    } catch {
      // The request is not listed.
    }
  }

  /** Its method, and its route if that is known. */
  endpoint() {
    const route = this.route();
    return [this.method, typeof route === 'string' ? route : ''].filter(Boolean).join(' ');
  }

  /** Passes the route to the span processor that reports the end. */
  name() {
    this.isNamed = true;
    if (typeof this.route() === 'string') native.nameRequest(this.id, this.endpoint());
  }

  /**
   * The request that began in `servers` or in another middleware, or a new one; with labels.
   * @param {any} request
   * @param {any} response
   * @returns {ServerRequest}
   */
  static of(request, response) {
    const begun = request[REQUEST];
    return begun?.hasLabels ? begun : new ServerRequest(request, response, true);
  }

  /**
   * Listeners for the body run in the request's context: Node.js emits these events in the connection's.
   * @param {any} request
   */
  carryTo(request) {
    const { emit } = request;
    const own = this;
    /**
     * @this {any}
     * @param {any[]} args
     */
    function emitInRequest(...args) {
      return scope.current() === 0 ? scope.run(own.id, () => emit.apply(this, args), []) : emit.apply(this, args);
    }
    Object.defineProperty(request, 'emit', { value: emitInRequest, configurable: true, writable: true });
  }

  /** The context of code of the request: the current one, unless that is not inside of the request. */
  context() {
    const current = scope.current();
    return current === 0 || current === this.outer ? this.id : current;
  }

  /**
   * Calls `next` after routing.
   * @template R
   * @param {string} route template of the path
   * @param {() => R} next
   * @returns {R}
   */
  runRouted(route, next) {
    this.route = () => route;
    if (!this.hasLabels) {
      // Some instrumentations end the span before the response is finished.
      this.name();
      return next();
    }
    this.id = scope.child(this.context(), { 'http.route': route });
    return scope.run(this.id, next, []);
  }
}

module.exports = { ServerRequest, REQUEST, openRoots, patternOf };
