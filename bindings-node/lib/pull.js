'use strict';
// Express and Fastify: serves profiles under `/debug/pprof`, and the control operations under `/debug/spanprof`. Parameters and
// access are the core's.

const { native } = require('./native.js');
const { Promise } = require('./primordials.js');

const DEFAULT_PATH = '/debug/pprof';
const CONTROL_PATH = '/debug/spanprof';
/** Limit of a request's body; one more byte is read, which the core refuses. */
const MAX_BODY_BYTES = 65536;

/**
 * The body of a request, also if a parser of the application has read it.
 * @param {any} request
 * @returns {Promise<Buffer>}
 */
async function bodyOf(request) {
  const { body } = request;
  if (Buffer.isBuffer(body)) return body;
  if (typeof body === 'string') return Buffer.from(body);
  const isRead = request.readableEnded === true || request.readableDidRead === true;
  if (isRead) return Buffer.from(body === undefined || body === null ? '' : JSON.stringify(body));
  return new Promise((resolve, reject) => {
    /** @type {Buffer[]} */
    const parts = [];
    let length = 0;
    const end = () => resolve(Buffer.concat(parts).subarray(0, MAX_BODY_BYTES + 1));
    request.on('data', (/** @type {Buffer} */ part) => {
      // The rest is read and discarded, so that the client gets the response.
      if (length <= MAX_BODY_BYTES) parts.push(part);
      length += part.length;
      if (length > MAX_BODY_BYTES) end();
    });
    request.once('end', end);
    request.once('close', end);
    request.once('error', reject);
  });
}

/**
 * Answers a request on a thread of its own; ends it when the client leaves.
 * @param {import('node:http').IncomingMessage} request
 * @param {import('node:http').ServerResponse} response
 * @param {string} mount path of the handler
 * @param {string} rest path after it, without the query
 * @param {Buffer} body
 * @returns {Promise<{status: number, headers: string[], body: Buffer}>}
 */
async function pull(request, response, mount, rest, body) {
  const call = new native.PullCall();
  const cancel = () => call.cancel();
  response.once('close', cancel);
  try {
    const query = (request.url ?? '').split('?').slice(1).join('?');
    const headers = Object.entries(request.headers).flatMap(([name, value]) => [name, String(value)]);
    return await call.run(request.method ?? 'GET', mount, rest, query, headers, body);
  } finally {
    response.removeListener('close', cancel);
  }
}

/**
 * The handler's path and the rest of a request's; undefined for a request of the application.
 * @param {any} request
 * @returns {[string, string] | undefined}
 */
function splitPath(request) {
  const mount = request.baseUrl;
  if (typeof mount === 'string' && mount !== '') {
    // Express adds a slash to `url`.
    const [whole] = String(request.originalUrl).split('?');
    return [mount, whole.startsWith(mount) ? whole.slice(mount.length) : pathOf(request)];
  }
  const path = pathOf(request);
  if (path === DEFAULT_PATH || path.startsWith(`${DEFAULT_PATH}/`)) return [DEFAULT_PATH, path.slice(DEFAULT_PATH.length)];
  if (path === CONTROL_PATH || path.startsWith(`${CONTROL_PATH}/`)) return ['/debug', path.slice('/debug'.length)];
  return undefined;
}

/** @param {any} request */
function pathOf(request) {
  return String(request.url).split('?')[0] ?? '';
}

/**
 * `app.use(spanprof.pprofMiddleware())` serves `/debug/pprof/`; `app.use('/path', spanprof.pprofMiddleware())` another path.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
function pprofMiddleware() {
  native.servePulls();
  return function spanprofPprof(request, response, next) {
    const parts = splitPath(request);
    if (parts === undefined) {
      next();
      return;
    }
    bodyOf(request).then((content) => pull(request, response, ...parts, content)).then(({ status, headers, body }) => {
      response.statusCode = status;
      for (let i = 0; i < headers.length; i += 2) response.setHeader(headers[i], headers[i + 1]);
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
  native.servePulls();
  // Bodies of every type reach the core unchanged; larger ones are refused with 413. Applies to this plugin's routes only.
  fastify.removeAllContentTypeParsers();
  fastify.addContentTypeParser(
    '*', { parseAs: 'buffer', bodyLimit: MAX_BODY_BYTES },
    (/** @type {any} */ _request, /** @type {Buffer} */ body, /** @type {any} */ parsed) => parsed(null, body),
  );
  const isDefault = fastify.prefix === '';
  const mount = isDefault ? DEFAULT_PATH : fastify.prefix;
  const urls = isDefault ? [DEFAULT_PATH, `${DEFAULT_PATH}/*`, CONTROL_PATH, `${CONTROL_PATH}/*`] : ['/', '/*'];
  for (const url of urls) {
    fastify.route({
      method: ['GET', 'HEAD', 'POST', 'PATCH', 'DELETE'],
      url,
      bodyLimit: MAX_BODY_BYTES,
      handler: async (/** @type {any} */ request, /** @type {any} */ reply) => {
        const path = pathOf(request.raw);
        const [base, rest] = url.startsWith(CONTROL_PATH) ? ['/debug', path.slice('/debug'.length)] : [mount, path.slice(mount.length)];
        const content = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
        const { status, headers, body } = await pull(request.raw, reply.raw, base, rest, content);
        reply.code(status);
        for (let i = 0; i < headers.length; i += 2) reply.header(headers[i], headers[i + 1]);
        return reply.send(body);
      },
    });
  }
  done();
}

module.exports = { pprofMiddleware, pprofPlugin };
