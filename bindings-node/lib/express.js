'use strict';
// Express: samples of a request carry its method and, after routing, its route. Its end is reported.

const scope = require('./scope.js');
const { MiddlewareRequest } = require('./request.js');

/**
 * `app.use(spanprof.expressMiddleware())`, before the routes.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
function expressMiddleware() {
  return function spanprofMiddleware(request, response, next) {
    const before = scope.current();
    let id = before;
    try {
      const own = new MiddlewareRequest(request, response);
      ({ id } = own);
      watchRoute(request, own);
    } catch {
      // The request continues without labels.
    }
    scope.run(id, next, []);
  };
}

/**
 * Adds the route label: the router writes `request.route` right before it calls the handlers.
 * @param {any} request
 * @param {MiddlewareRequest} watched
 */
function watchRoute(request, watched) {
  let own = watched.id;
  let route = request.route;
  Object.defineProperty(request, 'route', {
    configurable: true,
    enumerable: true,
    get: () => route,
    set(found) {
      route = found;
      if (typeof found?.path !== 'string') return;
      watched.route = `${request.baseUrl ?? ''}${found.path}`;
      // The router runs in another context, whose labels must not change.
      if (scope.current() !== own) return;
      own = scope.child(watched.id, { 'http.route': watched.route });
      scope.enter(own);
    },
  });
}

module.exports = { expressMiddleware };
