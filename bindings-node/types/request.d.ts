/** A request from its begin on. Its end is reported once, unless a span processor reports it. */
export class MiddlewareRequest {
    /**
     * @param {any} request as Node.js passes it
     * @param {any} response
     * @param {string} [route] template of the path, if it is known already
     */
    constructor(request: any, response: any, route?: string);
    /** The request's context. @type {number} */
    id: number;
    /** @type {string | undefined} */
    route: string | undefined;
}
