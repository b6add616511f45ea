/**
 * Names and their values; undefined ones are left out. Declared as `object`, so that TypeScript interfaces are accepted.
 */
export type Texts = Readonly<Record<string, string | number | boolean | null | undefined>> | object;
/**
 * Keys of docs/reference/configuration.md in camelCase; others come from environment variables, the configuration file and the defaults.
 */
export type Options = {
    enabled?: boolean | undefined;
    serviceName?: string | undefined;
    resourceAttributes?: Texts | undefined;
    tags?: Texts | undefined;
    /**
     * Hz
     */
    sampleRate?: number | undefined;
    clock?: "auto" | "thread_timer" | "perf" | undefined;
    cpu?: boolean | undefined;
    wall?: boolean | undefined;
    /**
     * Hz
     */
    wallRate?: number | undefined;
    profiles?: "default" | "all" | undefined;
    /**
     * prefixes of paths of own code
     */
    ownCode?: readonly string[] | undefined;
    gc?: boolean | undefined;
    heap?: boolean | undefined;
    /**
     * bytes
     */
    heapInterval?: number | undefined;
    heapLiveSamples?: number | undefined;
    heapPeakDirectory?: string | undefined;
    lock?: boolean | undefined;
    /**
     * seconds
     */
    lockThreshold?: number | undefined;
    offCpu?: boolean | undefined;
    threads?: boolean | undefined;
    /**
     * seconds
     */
    uploadInterval?: number | undefined;
    maxStackDepth?: number | undefined;
    nativeFrames?: "off" | "on" | "all" | undefined;
    keepTimestamps?: boolean | undefined;
    /**
     * whether requests are followed without code; true by default
     */
    requests?: boolean | undefined;
    retention?: "all" | "tail" | undefined;
    tailDuration?: number | "p99" | "none" | undefined;
    tailCpuShare?: number | undefined;
    tailAllocatedBytes?: number | undefined;
    tailErrors?: boolean | undefined;
    endpoint?: string | undefined;
    protocol?: "http/protobuf" | "grpc" | undefined;
    headers?: Readonly<Record<string, string | undefined>> | undefined;
    compression?: "gzip" | "none" | undefined;
    /**
     * seconds
     */
    timeout?: number | undefined;
    certificate?: string | undefined;
    clientKey?: string | undefined;
    clientCertificate?: string | undefined;
    insecure?: boolean | undefined;
    link?: "trace_and_span" | "span" | "none" | undefined;
    destinations?: readonly object[] | undefined;
    fileDirectory?: string | undefined;
    fileKeep?: number | undefined;
    /**
     * seconds
     */
    fileMaxAge?: number | undefined;
    fileMaxBytes?: number | undefined;
    /**
     * whether the numbers of `stats()` are sent as OpenTelemetry metrics
     */
    metrics?: boolean | undefined;
    /**
     * seconds
     */
    metricsInterval?: number | undefined;
    metricsEndpoint?: string | undefined;
    metricsHeaders?: Readonly<Record<string, string | undefined>> | undefined;
    redaction?: boolean | undefined;
    redactionRules?: readonly object[] | undefined;
    redactionHashKey?: string | undefined;
    /**
     * file for the whole run: `.html`, `.pb.gz` or `.folded`
     */
    output?: string | undefined;
    /**
     * `host:port` at which profiles are pulled
     */
    pull?: string | undefined;
    pullToken?: string | undefined;
    queueMaxBytes?: number | undefined;
    bufferDirectory?: string | undefined;
    bufferMaxBytes?: number | undefined;
    maxProfileSize?: number | undefined;
    /**
     * seconds
     */
    stopTimeout?: number | undefined;
    threadLabels?: boolean | undefined;
    /**
     * whether a worker thread starts with the labels and the span of the scope that creates
     * it; false by default
     */
    inheritThreads?: boolean | undefined;
    signals?: boolean | undefined;
    /**
     * share of one core, or of a CPU quota below one processor; 0 for no limit
     */
    cpuBudget?: number | undefined;
    /**
     * Hz
     */
    sampleRateMax?: number | undefined;
    /**
     * share of the available CPU time and memory
     */
    adaptiveThreshold?: number | undefined;
    /**
     * false: load is never shed
     */
    loadShedding?: boolean | undefined;
    /**
     * share of the available CPU time and memory
     */
    loadSheddingThreshold?: number | undefined;
    configFile?: string | undefined;
    /**
     * such as `15s/5m`
     */
    cpuDutyCycle?: string | undefined;
    /**
     * such as `15s/5m`
     */
    heapDutyCycle?: string | undefined;
    /**
     * whether worker threads are profiled by their JavaScript stacks; true by default
     */
    workerThreads?: boolean | undefined;
    /**
     * milliseconds: a longer turn of an event loop is reported with its stacks; 50 by
     * default, 0 for none
     */
    eventLoopBlock?: number | undefined;
    /**
     * the first walk method to try; by default the first that works in this Node.js
     */
    stackWalk?: sampling.StackWalk | undefined;
    /**
     * signals before whose default action the last window is sent; none
     * by default
     */
    stopOnSignals?: readonly NodeJS.Signals[] | undefined;
};
/**
 * Starts profiling this process; returns whether samples are being taken afterwards. A call while running changes nothing.
 * Throws {@link SpanprofError} for an impossible option, and for nothing else: where this process cannot be profiled, it returns
 * false and one warning says why.
 * @param {Options} [options]
 * @returns {boolean}
 */
export function start(options?: Options): boolean;
/**
 * As `start`, for preloading: an error becomes a warning.
 * @param {Options} [options]
 */
export function startQuietly(options?: Options): boolean;
/**
 * Stops profiling and sends the last window within `stopTimeout` seconds; returns whether every window since the start was
 * delivered.
 * @returns {Promise<boolean>}
 */
export function stop(): Promise<boolean>;
/** As `stop`, on this thread. */
export function stopSync(): void;
/**
 * Sends the samples so far; returns whether everything was delivered within `timeout` seconds.
 * @param {number} [timeout] seconds; `stopTimeout` by default
 * @returns {Promise<boolean>}
 */
export function flush(timeout?: number): Promise<boolean>;
/**
 * Whether a native call has delivered within `timeout` seconds.
 * @param {(milliseconds?: number) => Promise<boolean>} send
 * @param {number} [timeout]
 */
export function delivery(send: (milliseconds?: number) => Promise<boolean>, timeout?: number): Promise<boolean>;
/**
 * Changes settings while running; false when the profiler does not run. Throws {@link SpanprofError} for a setting that
 * cannot change while running, and for an invalid value.
 * @param {Options} options
 * @returns {boolean}
 */
export function update(options: Options): boolean;
/**
 * Statistics of the profiler: samples, losses with their reasons, deliveries, settings with their sources.
 * @returns {Record<string, any>}
 */
export function stats(): Record<string, any>;
/**
 * Whether this process is being profiled now: true between a `start` that returned true and `stop`.
 * @returns {boolean}
 */
export function isRunning(): boolean;
import sampling = require("./sampling.js");
