/** The profiler cannot start, or cannot take a new setting. */
export class SpanprofError extends Error {
    /**
     * An object of options whose reading threw.
     * @param {unknown} error
     */
    static unreadable(error: unknown): SpanprofError;
    /**
     * What the native module threw, as ours.
     * @param {unknown} error
     */
    static of(error: unknown): SpanprofError;
    /**
     * @param {string} message
     * @param {string} [kind] one of a closed set of words (`invalid_config`, `unsupported_runtime`, …)
     * @param {string} [hint] the way out
     */
    constructor(message: string, kind?: string, hint?: string);
    kind: string;
    hint: string;
}
