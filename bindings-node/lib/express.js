'use strict';
// Express: samples of a request carry its method and, after routing, its route.

const scope = require('./scope.js');
const { requestLabels } = require('./request.js');

/**
 * `app.use(spanprof.expressMiddleware())`, before the routes.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
function expressMiddleware() {
  return function spanprofMiddleware(request, _response, next) {
    const before = scope.current();
    let id = before;
    try {
      id = scope.child(before, requestLabels(request));
      watchRoute(request, id);
    } catch {
      // The request continues without labels.
    }
    scope.run(id, next, []);
  };
}

/**
 * Adds the route label: the router writes `request.route` right before it calls the handlers.
 * @param {any} request
 * @param {number} id the request's context
 */
function watchRoute(request, id) {
  let own = id;
  let route = request.route;
  Object.defineProperty(request, 'route', {
    configurable: true,
    enumerable: true,
    get: () => route,
    set(found) {
      route = found;
      // The router runs in another context, whose labels must not change.
      if (scope.current() !== own || typeof found?.path !== 'string') return;
      own = scope.child(id, { 'http.route': `${request.baseUrl ?? ''}${found.path}` });
      scope.enter(own);
    },
  });
}

module.exports = { expressMiddleware };
