declare namespace _exports {
    export { PyroscopeOptions };
}
declare namespace _exports {
    export { init };
    export { start };
    export let stop: typeof lifecycle.stop;
    export { startWallProfiling };
    export { startWallProfiling as startCpuProfiling };
    export { stopWallProfiling };
    export { stopWallProfiling as stopCpuProfiling };
    export { startHeapProfiling };
    export { stopHeapProfiling };
    export { wrapWithLabels };
    export let setLabels: typeof scope.setLabels;
    export let getLabels: typeof scope.getLabels;
    export let setWallLabels: typeof scope.setLabels;
    export let getWallLabels: typeof scope.getLabels;
    export let setLogger: typeof hostLog.setLogger;
    export { SourceMapper };
    export { expressMiddleware };
    export { fastifyPlugin as fastifyMiddleware };
}
export = _exports;
/**
 * Options of `@pyroscope/nodejs`; those of spanprof are accepted too and take precedence.
 */
type PyroscopeOptions = Omit<lifecycle.Options, "wall" | "heap"> & {
    appName?: string | undefined;
    serverAddress?: string | undefined;
    authToken?: string | undefined;
    basicAuthUser?: string | undefined;
    basicAuthPassword?: string | undefined;
    tenantID?: string | undefined;
    flushIntervalMs?: number | undefined;
    sourceMapper?: unknown;
    stripFilenames?: string | undefined;
    shortenPaths?: boolean | undefined;
    wall?: boolean | {
        samplingDurationMs?: number | undefined;
        samplingIntervalMicros?: number | undefined;
        collectCpuTime?: boolean | undefined;
    } | undefined;
    heap?: boolean | {
        samplingIntervalBytes?: number | undefined;
        stackDepth?: number | undefined;
    } | undefined;
};
/**
 * Stores the configuration for `start`. The wall clock and the heap profile are on unless `wall` or `heap` is false: they are
 * Pyroscope's profiles.
 * @param {PyroscopeOptions} [options]
 */
declare function init(options?: PyroscopeOptions): void;
/**
 * Starts with the options of `init`; options given here take precedence. See `start` of the package.
 * @param {PyroscopeOptions} [options]
 * @returns {boolean}
 */
declare function start(options?: PyroscopeOptions): boolean;
import lifecycle = require("./lifecycle.js");
/** Starts CPU and wall-clock profiling. */
declare function startWallProfiling(): void;
/** @returns {Promise<void>} */
declare function stopWallProfiling(): Promise<void>;
/** Starts CPU and heap profiling. */
declare function startHeapProfiling(): void;
/** Ends the heap profile; the others continue. @returns {Promise<void>} */
declare function stopHeapProfiling(): Promise<void>;
/**
 * Pyroscope's name of `tagWrapper`: returns the result of `fn`; the labels last across `await`.
 * @template {any[]} A
 * @template R
 * @param {scope.Labels} labels
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
declare function wrapWithLabels<A extends any[], R>(labels: scope.Labels, fn: (...args: A) => R, ...args: A): R;
import scope = require("./scope.js");
import hostLog = require("./host_log.js");
/** Accepted for compatibility; source maps are found without it. */
declare class SourceMapper {
    /**
     * @param {string[]} [_directories]
     * @returns {Promise<SourceMapper>}
     */
    static create(_directories?: string[]): Promise<SourceMapper>;
}
import { expressMiddleware } from "./express.js";
import { fastifyPlugin } from "./fastify.js";
