'use strict';
// Express 4 and 5: samples of a request carry its method and, after routing, its route. Its end is reported.
//
// # Changes in Express
// | module | relied on | versions |
// |---|---|---|
// | `express/lib/router/layer.js` | `Layer.prototype.handle_request` handles a layer, whose `route` is set for a route | 4.0–4.22 |
// | `router/lib/layer.js` | `Layer.prototype.handleRequest` does | Express 5.0–5.3 with `router` 2.0–2.3 |
// | `express/lib/application.js` | `_router` and `router` of an application | 4.0–5.3 |

const scope = require('./scope.js');
const { ServerRequest, REQUEST, patternOf } = require('./request.js');

/** Classes of layers that report routes. @type {WeakSet<object>} */
const watched = new WeakSet();

/**
 * `app.use(spanprof.expressMiddleware())`, before the routes.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
function expressMiddleware() {
  return function spanprofMiddleware(request, response, next) {
    let id = scope.current();
    try {
      id = ServerRequest.of(request, response).context();
      watchRoutes(request.app);
    } catch {
      // The request continues without labels.
    }
    scope.run(id, next, []);
  };
}

/**
 * From now on, requests get the routes of this application's version of Express.
 * @param {any} app
 */
function watchRoutes(app) {
  // In Express 4, `router` throws.
  const layers = (app?._router ?? app?.router)?.stack;
  const prototype = Array.isArray(layers) && layers.length > 0 ? Object.getPrototypeOf(layers[0]) : undefined;
  if (prototype === undefined || watched.has(prototype)) return;
  watched.add(prototype);
  for (const name of ['handle_request', 'handleRequest']) {
    const original = prototype[name];
    if (typeof original !== 'function') continue;
    /**
     * @this {any}
     * @param {any} request
     * @param {any} response
     * @param {any} next
     */
    prototype[name] = function handleRequest(request, response, next) {
      const own = this.route === undefined ? undefined : request[REQUEST];
      const pattern = own && patternOf(request, this.route);
      if (pattern === undefined) return original.call(this, request, response, next);
      return own.runRouted(pattern, () => original.call(this, request, response, next));
    };
  }
}

module.exports = { expressMiddleware, watchRoutes };
