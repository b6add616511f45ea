'use strict';
// Fastify 4 and 5: samples of a request carry its method and route. Its end is reported.

const scope = require('./scope.js');
const { MiddlewareRequest } = require('./request.js');

const ID = Symbol('spanprof.context');

/**
 * `app.register(spanprof.fastifyPlugin)`: one registration serves every route of the application.
 * @param {any} fastify
 * @param {object} _options
 * @param {() => void} done
 */
function fastifyPlugin(fastify, _options, done) {
  fastify.addHook('onRequest', (/** @type {any} */ request, /** @type {any} */ reply, /** @type {() => void} */ next) => {
    let id = scope.current();
    try {
      const route = request.routeOptions?.url;
      ({ id } = new MiddlewareRequest(request.raw, reply.raw, typeof route === 'string' ? route : undefined));
      request[ID] = id;
    } catch {
      // The request continues without labels.
    }
    scope.run(id, next, []);
  });
  // The body was read in the connection's context, not in the request's.
  fastify.addHook('preValidation', (/** @type {any} */ request, /** @type {any} */ _reply, /** @type {() => void} */ next) => {
    const id = request[ID];
    if (id === undefined || id === scope.current() || scope.current() !== 0) next();
    else scope.run(id, next, []);
  });
  done();
}
// As fastify-plugin does: the hooks apply to the application, not only to the plugin's scope.
Object.assign(fastifyPlugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'spanprof',
});

module.exports = { fastifyPlugin };
