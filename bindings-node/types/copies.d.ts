export type Copy = {
    /**
     * of its `lib`
     */
    folder: string;
    version: string;
    isRunning: () => boolean;
    load: (module: "index" | "lifecycle" | "pyroscope") => any;
};
/** The folder of this file; empty in a bundle in ESM form, which has none. */
export const HERE: string;
/** Whether a bundler has put this module into a file of its own choice. */
export const IS_BUNDLED: boolean;
/** @param {Copy} own */
export function register(own: Copy): void;
/**
 * The copy that was there before this one, if any.
 * @returns {Copy | undefined}
 */
export function other(): Copy | undefined;
/** @param {Copy} first */
export function warnOnce(first: Copy): void;
/**
 * What a module of this package exports: `own`, or the functions of the same names of the copy that came first.
 * @template {Record<string, any>} T
 * @param {'index' | 'pyroscope'} module
 * @param {T} own
 * @returns {T}
 */
export function exported<T extends Record<string, any>>(module: "index" | "pyroscope", own: T): T;
