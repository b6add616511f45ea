/**
 * The code layer of the configuration as JSON, and the option that only this package reads. Throws `SpanprofError` only.
 * @param {object | null | undefined} options
 * @returns {{json: string, stopOnSignals: readonly string[]}}
 */
export function read(options: object | null | undefined): {
    json: string;
    stopOnSignals: readonly string[];
};
/**
 * The same of `update`, which changes keys of the core alone.
 * @param {object | null | undefined} options
 * @returns {string}
 */
export function toJson(options: object | null | undefined): string;
