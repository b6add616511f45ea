/** Links the active span of OpenTelemetry, whether its API is loaded before or later. */
export function linkOpenTelemetry(): void;
/** Begins requests of HTTP servers, and calls that they await, without code of the program, unless `requests` is false. */
export function followRequests(): void;
/**
 * Replaces the class of worker threads, once: a proxy has its name, length, static members, prototype and text.
 * @param {boolean} [isFirst] whether this package is the first to be loaded: no ES module has imported the class
 */
export function replaceWorker(isFirst?: boolean): void;
