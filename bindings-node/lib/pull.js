'use strict';
// Express and Fastify: serves profiles under `/debug/pprof`. Paths, parameters and access are the core's.

const { native } = require('./native.js');

const DEFAULT_PATH = '/debug/pprof';

/**
 * Collects a profile on a thread of its own; ends it when the client leaves.
 * @param {import('node:http').IncomingMessage} request
 * @param {import('node:http').ServerResponse} response
 * @param {string} path the path, whole or after the mount point
 * @returns {Promise<{status: number, headers: string[], body: Buffer}>}
 */
async function pull(request, response, path) {
  const call = new native.PullCall();
  const cancel = () => call.cancel();
  response.once('close', cancel);
  try {
    const query = (request.url ?? '').split('?').slice(1).join('?');
    const headers = Object.entries(request.headers).flatMap(([name, value]) => [name, String(value)]);
    return await call.run(request.method ?? 'GET', path, query, headers);
  } finally {
    response.removeListener('close', cancel);
  }
}

/**
 * `app.use(spanprof.pprofMiddleware())` serves `/debug/pprof/`; `app.use('/path', spanprof.pprofMiddleware())` another path.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
function pprofMiddleware() {
  return function spanprofPprof(request, response, next) {
    const path = String(request.url).split('?')[0] ?? '';
    const isMounted = typeof request.baseUrl === 'string' && request.baseUrl !== '';
    if (!isMounted && path !== DEFAULT_PATH && !path.startsWith(`${DEFAULT_PATH}/`)) {
      next();
      return;
    }
    pull(request, response, path).then(({ status, headers, body }) => {
      response.statusCode = status;
      for (let at = 0; at < headers.length; at += 2) response.setHeader(headers[at], headers[at + 1]);
      response.setHeader('Content-Length', body.length);
      response.end(request.method === 'HEAD' ? undefined : body);
    }).catch(next);
  };
}

/**
 * `app.register(spanprof.pprofPlugin)` serves `/debug/pprof/`; with `{ prefix: '/path' }` another path.
 * @param {any} fastify
 * @param {object} _options
 * @param {() => void} done
 */
function pprofPlugin(fastify, _options, done) {
  const base = fastify.prefix === '' ? DEFAULT_PATH : '';
  for (const url of [base === '' ? '/' : base, `${base}/*`]) {
    fastify.route({
      method: ['GET', 'HEAD', 'POST'],
      url,
      handler: async (/** @type {any} */ request, /** @type {any} */ reply) => {
        const { status, headers, body } = await pull(request.raw, reply.raw, `/${request.params['*'] ?? ''}`);
        reply.code(status);
        for (let at = 0; at < headers.length; at += 2) reply.header(headers[at], headers[at + 1]);
        return reply.send(body);
      },
    });
  }
  done();
}

module.exports = { pprofMiddleware, pprofPlugin };
