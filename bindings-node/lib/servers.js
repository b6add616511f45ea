'use strict';
// Requests of HTTP servers, without code of the program: each begins before the listeners of its server. Routes come from the
// framework where it is recognized. Not here: HTTP/2, whose requests Node.js does not announce before 24.
//
// # What the frameworks and Node.js offer
// | source | relied on | versions |
// |---|---|---|
// | `node:_http_server` | channel `http.server.request.start`, right before `server.emit('request')` | Node.js 18–26 |
// | Fastify | channel `fastify.initialization`, `routeOptions.url` | 4.10–5.12 |
// | Koa | `Application.prototype.createContext`; routers set `ctx._matchedRoute` | 2.0–3.1; `@koa/router` 8–15 |
// | Express, NestJS | `express` | |

const diagnostics = require('node:diagnostics_channel');
const { native } = require('./native.js');
const { ServerRequest, REQUEST } = require('./request.js');
const { watchRoutes } = require('./express.js');
const scope = require('./scope.js');

/** Servers with our listener. @type {WeakSet<object>} */
const servers = new WeakSet();
/** Prototypes with a replaced method. @type {WeakSet<object>} */
const replaced = new WeakSet();

/**
 * A request starts: from now on, those of its server begin in a listener before all others, this one included. A listener runs inside
 * of the span that an instrumentation of `emit` opens.
 * @param {any} server
 */
function requestStarts(server) {
  if (servers.has(server)) return;
  servers.add(server);
  scopeEvents(Object.getPrototypeOf(server));
  server.prependListener('request', begin);
  recognizeKoa();
}

/**
 * The context that a listener enters ends with the event: the connection has none.
 * @param {any} prototype of servers
 */
function scopeEvents(prototype) {
  for (let above = prototype; above !== null; above = Object.getPrototypeOf(above)) if (replaced.has(above)) return;
  replaced.add(prototype);
  const own = Object.getOwnPropertyDescriptor(prototype, 'emit');
  const above = Object.getPrototypeOf(prototype);
  /**
   * @this {any}
   * @param {any} event
   * @param {any[]} args
   */
  function emit(event, ...args) {
    const original = own === undefined ? above.emit : own.value;
    if (event !== 'request') return original.call(this, event, ...args);
    const before = scope.current();
    try {
      return original.call(this, event, ...args);
    } finally {
      if (scope.current() !== before) scope.enter(before);
      watchApplication(args[0]);
    }
  }
  Object.defineProperty(prototype, 'emit', { value: emit, configurable: true, enumerable: true, writable: true });
}

/**
 * @param {any} request
 * @param {any} response
 */
function begin(request, response) {
  try {
    if (!native.isRunning() || request[REQUEST] !== undefined) return;
    const { id } = new ServerRequest(request, response, false);
    if (id !== scope.current()) scope.enter(id);
  } catch {
    // The request continues without labels.
  }
}

/** @param {any} request which Express has linked with its application */
function watchApplication(request) {
  try {
    if (request.app !== undefined) watchRoutes(request.app);
  } catch {
    // Routes are read at the end of a request.
  }
}

/** Requests of Koa get the route that a router finds. */
function recognizeKoa() {
  for (const name of Object.keys(require.cache ?? {})) {
    if (!/[\\/]koa[\\/]lib[\\/]application\.js$/.test(name)) continue;
    const { prototype } = /** @type {any} */ (require.cache[name]).exports;
    const original = prototype.createContext;
    if (replaced.has(prototype) || typeof original !== 'function') continue;
    replaced.add(prototype);
    /**
     * @this {any}
     * @param {any} request
     * @param {any} response
     */
    prototype.createContext = function createContext(request, response) {
      const context = original.call(this, request, response);
      const own = request[REQUEST];
      if (own !== undefined) own.route = () => context._matchedRoute;
      return context;
    };
  }
}

/**
 * An application of Fastify was created.
 * @param {any} message
 */
function fastifyStarts({ fastify }) {
  fastify.addHook('onRequest', (/** @type {any} */ request, /** @type {any} */ _reply, /** @type {() => void} */ next) => {
    const own = request.raw[REQUEST];
    const route = request.routeOptions?.url;
    if (own === undefined || typeof route !== 'string') next();
    else own.runRouted(route, next);
  });
}

module.exports = { requestStarts, fastifyStarts };
