/**
 * A request starts: from now on, those of its server begin in a listener before all others, this one included. A listener runs inside
 * of the span that an instrumentation of `emit` opens.
 * @param {any} server
 */
export function requestStarts(server: any): void;
/**
 * An application of Fastify was created.
 * @param {any} message
 */
export function fastifyStarts({ fastify }: any): void;
