/**
 * Wraps the registry's context manager, and extends its tracer provider. Later registrations are observed by setters on the
 * registry's prototype, so that its properties stay plain properties, as fast to read as before.
 * @param {any} registry
 */
export function wrapRegistry(registry: any): void;
/**
 * The active span; undefined without one.
 * @returns {any}
 */
export function activeSpan(): any;
