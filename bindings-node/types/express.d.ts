/**
 * `app.use(spanprof.expressMiddleware())`, before the routes.
 * @returns {(request: any, response: any, next: (error?: unknown) => void) => void}
 */
export function expressMiddleware(): (request: any, response: any, next: (error?: unknown) => void) => void;
/**
 * From now on, requests get the routes of this application's version of Express.
 * @param {any} app
 */
export function watchRoutes(app: any): void;
