/** The profiler cannot start, or cannot accept a new setting. */
export class SpanprofError extends Error {
    /**
     * An error for an options object whose property access threw.
     * @param {unknown} error
     */
    static unreadable(error: unknown): SpanprofError;
    /**
     * Converts an error of the native module.
     * @param {unknown} error
     */
    static of(error: unknown): SpanprofError;
    /**
     * @param {string} message
     * @param {string} [kind] one of a closed set (`invalid_config`, `unsupported_runtime`, …)
     * @param {string} [hint] how to fix it
     */
    constructor(message: string, kind?: string, hint?: string);
    kind: string;
    hint: string;
}
