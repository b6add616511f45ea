/**
 * The options as JSON for the core, and the option that only this package reads. Throws only `SpanprofError`.
 * @param {object | null | undefined} options
 * @returns {{json: string, stopOnSignals: readonly string[]}}
 */
export function read(options: object | null | undefined): {
    json: string;
    stopOnSignals: readonly string[];
};
/**
 * The JSON of the settings for `update`, which changes keys of the core only.
 * @param {object | null | undefined} options
 * @returns {string}
 */
export function toJson(options: object | null | undefined): string;
