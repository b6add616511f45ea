/**
 * The code layer of the configuration as JSON.
 * @param {object | null | undefined} options
 * @returns {string}
 */
export function toJson(options: object | null | undefined): string;
