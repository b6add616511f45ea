/**
 * Wraps the registry's context manager. A later registration is observed by a setter on the registry's prototype, so that the
 * `context` property stays a plain property, as fast to read as before.
 * @param {any} registry
 */
export function wrapRegistry(registry: any): void;
/**
 * The active span; undefined without one.
 * @returns {any}
 */
export function activeSpan(): any;
