/** A request from its begin on. Its end is reported once, by the profiler or by a span processor. */
export class ServerRequest {
    /**
     * The request that began in `servers` or in another middleware, or a new one; with labels.
     * @param {any} request
     * @param {any} response
     * @returns {ServerRequest}
     */
    static of(request: any, response: any): ServerRequest;
    /**
     * @param {any} request as Node.js passes it
     * @param {any} response
     * @param {boolean} hasLabels whether its samples have labels, also if a span processor reports its end
     */
    constructor(request: any, response: any, hasLabels: boolean);
    outer: number;
    /** The local root of its contexts; empty if a span processor or another middleware reports its end. */
    localRoot: string;
    hasLabels: boolean;
    /** The request's context. @type {number} */
    id: number;
    method: string;
    /** Returns the template of the path, once it is known. @type {() => unknown} */
    route: () => unknown;
    isNamed: boolean;
    /**
     * @param {number} milliseconds
     * @param {any} response
     */
    end(milliseconds: number, response: any): Promise<void>;
    /** Its method, and its route if that is known. */
    endpoint(): string;
    /** Passes the route to the span processor that reports the end. */
    name(): void;
    /**
     * Listeners for the body run in the request's context: Node.js emits these events in the connection's.
     * @param {any} request
     */
    carryTo(request: any): void;
    /** The context of code of the request: the current one, unless that is not inside of the request. */
    context(): number;
    /**
     * Calls `next` after routing.
     * @template R
     * @param {string} route template of the path
     * @param {() => R} next
     * @returns {R}
     */
    runRouted<R>(route: string, next: () => R): R;
}
/** The {@link ServerRequest} of Node's request. */
export const REQUEST: unique symbol;
/** Local roots of the open requests whose end is reported here. @type {Set<string>} */
export const openRoots: Set<string>;
/**
 * The pattern of a route of Express.
 * @param {any} request
 * @param {any} route
 * @returns {string | undefined}
 */
export function patternOf(request: any, route: any): string | undefined;
