/**
 * A call begins, if a request that the profiler reports makes it.
 * @param {any} request
 * @param {unknown} address
 */
export function begin(request: any, address: unknown): void;
/** @param {any} request of `node:http` */
export function beginOfHttp(request: any): void;
/** @param {any} request */
export function end(request: any): void;
