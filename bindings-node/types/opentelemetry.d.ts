/** Wraps the current and any later context manager. */
export function install(): void;
/**
 * The active span; undefined without one.
 * @returns {any}
 */
export function activeSpan(): any;
