/**
 * `app.use(spanprof.pprofMiddleware())` serves `/debug/pprof/`; `app.use('/path', spanprof.pprofMiddleware())` another path.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
export function pprofMiddleware(): (request: any, response: any, next: (error?: unknown) => void) => void;
/**
 * `app.register(spanprof.pprofPlugin)` serves `/debug/pprof/`; with `{ prefix: '/path' }` another path.
 * @param {any} fastify
 * @param {object} _options
 * @param {() => void} done
 */
export function pprofPlugin(fastify: any, _options: object, done: () => void): void;
