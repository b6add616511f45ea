/**
 * `app.use(spanprof.expressMiddleware())`, before the routes.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
export function expressMiddleware(): (request: any, response: any, next: (error?: unknown) => void) => void;
