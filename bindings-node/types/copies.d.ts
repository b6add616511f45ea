export type Copy = {
    /**
     * of its `lib`
     */
    folder: string;
    version: string;
    isRunning: () => boolean;
    load: (module: "index" | "lifecycle" | "pprof" | "pyroscope") => any;
};
/** The directory of this file; empty in an ESM bundle, which has none. */
export const HERE: string;
/** Whether a bundler has moved this module into another file. */
export const IS_BUNDLED: boolean;
/** @param {Copy} own */
export function register(own: Copy): void;
/**
 * The copy that was loaded before this one, if any.
 * @returns {Copy | undefined}
 */
export function other(): Copy | undefined;
/** @param {Copy} first */
export function warnOnce(first: Copy): void;
/**
 * The exports of a module of this package: `own`, or the functions of the same names of the first copy.
 * @template {Record<string, any>} T
 * @param {'index' | 'pprof' | 'pyroscope'} module
 * @param {T} own
 * @returns {T}
 */
export function exported<T extends Record<string, any>>(module: "index" | "pprof" | "pyroscope", own: T): T;
