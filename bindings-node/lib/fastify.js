'use strict';
// Fastify 4 and 5: samples of a request carry its method and route. Its end is reported.

const scope = require('./scope.js');
const { ServerRequest } = require('./request.js');

/**
 * `app.register(spanprof.fastifyPlugin)`: one registration serves every route of the application.
 * @param {any} fastify
 * @param {object} _options
 * @param {() => void} done
 */
function fastifyPlugin(fastify, _options, done) {
  fastify.addHook('onRequest', (/** @type {any} */ request, /** @type {any} */ reply, /** @type {() => void} */ next) => {
    let own;
    try {
      own = ServerRequest.of(request.raw, reply.raw);
    } catch {
      next();
      return;
    }
    const route = request.routeOptions?.url;
    if (typeof route === 'string') own.runRouted(route, next);
    else scope.run(own.context(), next, []);
  });
  done();
}
// As fastify-plugin does: the hooks apply to the application, not only to the plugin's scope.
Object.assign(fastifyPlugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'spanprof',
});

module.exports = { fastifyPlugin };
