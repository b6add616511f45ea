export = noop;
/**
 * The functions of the native module (`bindings-node/src/api.rs`). Context ids are whole numbers; 0 is the empty context.
 * @typedef {object} Native
 * @property {() => string} version
 * @property {(configJson: string, programName: string, runtimeName: string) => boolean} start throws an error whose message is JSON: `kind`, `message`,
 *   `hint`
 * @property {(configJson: string) => boolean} isEnabled whether a start would sample; throws as `start` does
 * @property {(configJson: string) => string[] | null} optionValues values of `eventLoopBlock`, `workerThreads` and `stackWalk`; null where
 *   this process cannot be profiled; throws as `start` does
 * @property {() => void} expectSelfTest before the self-test's functions run for the first time
 * @property {(allowFramePointers: boolean) => string} selectStackWalk the walk method: `own`, `v8` or `none`
 * @property {() => Promise<boolean>} stop
 * @property {() => boolean} stopSync
 * @property {(milliseconds?: number) => Promise<boolean>} flush
 * @property {(configJson: string) => boolean} update throws as `start` does
 * @property {() => Record<string, any>} stats
 * @property {() => boolean} isRunning
 * @property {(key: string) => string | null} setting
 * @property {() => string[]} profileTypes keys of the profiles that are on
 * @property {(current: number, traceId: string, spanId: string) => void} beginRootSpan
 * @property {(traceId: string, spanId: string, milliseconds: number, name: string, method: string, route: string, isError: boolean) => void} endRootSpan
 * @property {(current: number, spanId: string) => void} beginClientSpan
 * @property {(spanId: string, name: string, milliseconds: number) => void} endClientSpan
 * @property {(current: number, endpoint: string) => void} nameRequest the endpoint of a request whose end a span processor reports
 * @property {(keysAndValues: string[]) => void} adoptResource attributes of the SDK's resource
 * @property {(current: number, traceId: string) => string} beginRequest local root of the request's contexts; empty if its end is not to be reported
 * @property {(request: string, milliseconds: number, endpoint: string, isError: boolean) => void} endRequest
 * @property {() => number} beginCapture number of the capture; 0 without a profiler
 * @property {(parent: number, capture: number) => number} captureContext the id of a context inside the capture
 * @property {(capture: number) => Promise<NativeProfile>} endCapture
 * @property {(capture: number) => void} discardCapture
 * @property {(parent: number, traceId: string, spanId: string, isRemote: boolean) => number} contextUnderSpan the id of a context
 *   under a span, or without one when its ids are empty
 * @property {(id: number, localRoot: string) => number} contextInRequest the id of a context in a request
 * @property {(id: number) => number} contextWithoutLabels the id of a context without its labels
 * @property {(parent: number, pairs: string[]) => number} childContext the id of a context with labels added; `trace_id` and
 *   `span_id` among them become its link
 * @property {(id: number) => DescribedContext} describeContext
 * @property {(id: number) => void} setCurrent
 * @property {() => Float64Array | null} contextArray holds the id of this thread's samples; null where JavaScript cannot write it
 * @property {() => number} currentInHandler the id that a sample would carry here, for tests
 * @property {(storage: object, probe: number) => boolean} registerStorage whether the handler finds `probe` in the storage
 * @property {() => boolean} registerThread
 * @property {() => void} delayTermination
 * @property {(milliseconds: number) => void} reportTurnsLongerThan threshold for every event loop; 0 for none
 * @property {() => void} servePulls called when a handler of `/debug/pprof` is created: totals since the start are kept from then on
 * @property {new () => PullCall} PullCall
 * @property {new () => WallCollection} WallCollection
 * @property {() => Buffer | null} objectsInUse gzip-compressed pprof; null without a heap profile
 * @property {(callback: () => void) => void} onLogLines calls back, on this thread, when lines are queued
 * @property {(milliseconds: number) => Promise<void>} sleep
 * @property {() => number} unixMilliseconds
 * @property {() => number} monotonicMilliseconds
 * @property {() => string[]} takeLogLines alternating `info`, `outcome` or `warning`, and a line
 * @property {() => boolean} hasStandardError
 * @property {(line: string) => void} writeToStandardError
 */
/**
 * @typedef {object} NativeProfile samples of a capture
 * @property {() => Buffer} pprof
 * @property {() => string} flamegraph
 * @property {(path: string) => void} save throws as `start` does
 * @property {(milliseconds?: number) => Promise<boolean>} send
 * @property {() => string[]} types
 */
/**
 * @typedef {object} DescribedContext
 * @property {number} labelSet
 * @property {string[]} labels alternating keys and values
 * @property {string} traceId
 * @property {string} spanId
 * @property {string} localRootSpanId
 * @property {number} capture number of the capture; 0 for none
 */
/**
 * @typedef {object} PullCall a pull of a profile; `headers` are alternating names and values
 * @property {(method: string, mount: string, rest: string, query: string, headers: string[], body: Buffer) => Promise<{status: number, headers: string[], body: Buffer}>} run
 * @property {() => void} cancel
 */
/**
 * @typedef {object} WallCollection wall-clock samples of the thread that creates it, as gzip-compressed pprof
 * @property {() => void} resume continues with a profiler that has started since
 * @property {() => Promise<Buffer>} end
 * @property {() => Buffer} endSync
 */
/** @type {Native} */
declare const noop: Native;
declare namespace noop {
    export { Native, NativeProfile, DescribedContext, PullCall, WallCollection };
}
/**
 * The functions of the native module (`bindings-node/src/api.rs`). Context ids are whole numbers; 0 is the empty context.
 */
type Native = {
    version: () => string;
    /**
     * throws an error whose message is JSON: `kind`, `message`,
     * `hint`
     */
    start: (configJson: string, programName: string, runtimeName: string) => boolean;
    /**
     * whether a start would sample; throws as `start` does
     */
    isEnabled: (configJson: string) => boolean;
    /**
     * values of `eventLoopBlock`, `workerThreads` and `stackWalk`; null where
     * this process cannot be profiled; throws as `start` does
     */
    optionValues: (configJson: string) => string[] | null;
    /**
     * before the self-test's functions run for the first time
     */
    expectSelfTest: () => void;
    /**
     * the walk method: `own`, `v8` or `none`
     */
    selectStackWalk: (allowFramePointers: boolean) => string;
    stop: () => Promise<boolean>;
    stopSync: () => boolean;
    flush: (milliseconds?: number) => Promise<boolean>;
    /**
     * throws as `start` does
     */
    update: (configJson: string) => boolean;
    stats: () => Record<string, any>;
    isRunning: () => boolean;
    setting: (key: string) => string | null;
    /**
     * keys of the profiles that are on
     */
    profileTypes: () => string[];
    beginRootSpan: (current: number, traceId: string, spanId: string) => void;
    endRootSpan: (traceId: string, spanId: string, milliseconds: number, name: string, method: string, route: string, isError: boolean) => void;
    beginClientSpan: (current: number, spanId: string) => void;
    endClientSpan: (spanId: string, name: string, milliseconds: number) => void;
    /**
     * the endpoint of a request whose end a span processor reports
     */
    nameRequest: (current: number, endpoint: string) => void;
    /**
     * attributes of the SDK's resource
     */
    adoptResource: (keysAndValues: string[]) => void;
    /**
     * local root of the request's contexts; empty if its end is not to be reported
     */
    beginRequest: (current: number, traceId: string) => string;
    endRequest: (request: string, milliseconds: number, endpoint: string, isError: boolean) => void;
    /**
     * number of the capture; 0 without a profiler
     */
    beginCapture: () => number;
    /**
     * the id of a context inside the capture
     */
    captureContext: (parent: number, capture: number) => number;
    endCapture: (capture: number) => Promise<NativeProfile>;
    discardCapture: (capture: number) => void;
    /**
     * the id of a context
     * under a span, or without one when its ids are empty
     */
    contextUnderSpan: (parent: number, traceId: string, spanId: string, isRemote: boolean) => number;
    /**
     * the id of a context in a request
     */
    contextInRequest: (id: number, localRoot: string) => number;
    /**
     * the id of a context without its labels
     */
    contextWithoutLabels: (id: number) => number;
    /**
     * the id of a context with labels added; `trace_id` and
     * `span_id` among them become its link
     */
    childContext: (parent: number, pairs: string[]) => number;
    describeContext: (id: number) => DescribedContext;
    setCurrent: (id: number) => void;
    /**
     * holds the id of this thread's samples; null where JavaScript cannot write it
     */
    contextArray: () => Float64Array | null;
    /**
     * the id that a sample would carry here, for tests
     */
    currentInHandler: () => number;
    /**
     * whether the handler finds `probe` in the storage
     */
    registerStorage: (storage: object, probe: number) => boolean;
    registerThread: () => boolean;
    delayTermination: () => void;
    /**
     * threshold for every event loop; 0 for none
     */
    reportTurnsLongerThan: (milliseconds: number) => void;
    /**
     * called when a handler of `/debug/pprof` is created: totals since the start are kept from then on
     */
    servePulls: () => void;
    PullCall: new () => PullCall;
    WallCollection: new () => WallCollection;
    /**
     * gzip-compressed pprof; null without a heap profile
     */
    objectsInUse: () => Buffer | null;
    /**
     * calls back, on this thread, when lines are queued
     */
    onLogLines: (callback: () => void) => void;
    sleep: (milliseconds: number) => Promise<void>;
    unixMilliseconds: () => number;
    monotonicMilliseconds: () => number;
    /**
     * alternating `info`, `outcome` or `warning`, and a line
     */
    takeLogLines: () => string[];
    hasStandardError: () => boolean;
    writeToStandardError: (line: string) => void;
};
/**
 * samples of a capture
 */
type NativeProfile = {
    pprof: () => Buffer;
    flamegraph: () => string;
    /**
     * throws as `start` does
     */
    save: (path: string) => void;
    send: (milliseconds?: number) => Promise<boolean>;
    types: () => string[];
};
type DescribedContext = {
    labelSet: number;
    /**
     * alternating keys and values
     */
    labels: string[];
    traceId: string;
    spanId: string;
    localRootSpanId: string;
    /**
     * number of the capture; 0 for none
     */
    capture: number;
};
/**
 * a pull of a profile; `headers` are alternating names and values
 */
type PullCall = {
    run: (method: string, mount: string, rest: string, query: string, headers: string[], body: Buffer) => Promise<{
        status: number;
        headers: string[];
        body: Buffer;
    }>;
    cancel: () => void;
};
/**
 * wall-clock samples of the thread that creates it, as gzip-compressed pprof
 */
type WallCollection = {
    /**
     * continues with a profiler that has started since
     */
    resume: () => void;
    end: () => Promise<Buffer>;
    endSync: () => Buffer;
};
