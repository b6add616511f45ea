/**
 * `app.register(spanprof.fastifyPlugin)`: one registration serves every route of the application.
 * @param {any} fastify
 * @param {object} _options
 * @param {() => void} done
 */
export function fastifyPlugin(fastify: any, _options: object, done: () => void): void;
