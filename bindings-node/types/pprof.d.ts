declare namespace _exports {
    export { Profile, ProfileNode, TimeProfileNode, Allocation, AllocationProfileNode, TimeProfilerOptions };
}
declare namespace _exports {
    export { time };
    export { heap };
    export { encode };
    export { encodeSync };
    export { SourceMapper };
    export let setLogger: typeof hostLog.setLogger;
}
export = _exports;
type Profile = format.Profile;
type ProfileNode = {
    name?: string;
    scriptName: string;
    scriptId?: number;
    lineNumber?: number;
    columnNumber?: number;
    children: ProfileNode[];
};
type TimeProfileNode = ProfileNode & {
    hitCount: number;
};
type Allocation = {
    sizeBytes: number;
    count: number;
};
type AllocationProfileNode = ProfileNode & {
    allocations: Allocation[];
    children: AllocationProfileNode[];
};
type TimeProfilerOptions = {
    /**
     * milliseconds
     */
    durationMillis: number;
    /**
     * microseconds between samples, at least 1000; 1000 by default. A profiler that runs already keeps
     * its rate
     */
    intervalMicros?: number | undefined;
    /**
     * without effect
     */
    name?: string | undefined;
    /**
     * without effect: source maps are read without it
     */
    sourceMapper?: SourceMapper | undefined;
    /**
     * without effect: the executing line is always recorded
     */
    lineNumbers?: boolean | undefined;
};
declare namespace time {
    export { profileTime as profile };
    export { startTime as start };
}
declare namespace heap {
    export { startHeap as start };
    export { stopHeap as stop };
    export { profileHeap as profile };
    export { v8Profile };
}
/**
 * The profile as gzip-compressed pprof.
 * @param {Profile} profile
 * @returns {Promise<Buffer>}
 */
declare function encode(profile: Profile): Promise<Buffer>;
/**
 * As `encode`, at once.
 * @param {Profile} profile
 * @returns {Buffer}
 */
declare function encodeSync(profile: Profile): Buffer;
/** Accepted for compatibility: the profiler finds source maps without it, and positions in profiles are those of the sources. */
declare class SourceMapper {
    /**
     * @param {string[]} [_searchDirs]
     * @returns {Promise<SourceMapper>}
     */
    static create(_searchDirs?: string[]): Promise<SourceMapper>;
    /** @type {Map<string, unknown>} */
    infoMap: Map<string, unknown>;
    /**
     * @param {string} _inputPath
     * @returns {boolean}
     */
    hasMappingInfo(_inputPath: string): boolean;
    /**
     * @template T
     * @param {T} location
     * @returns {T} the same location
     */
    mappingInfo<T>(location: T): T;
}
import hostLog = require("./host_log.js");
import format = require("./pprof_format.js");
/**
 * Collects a profile of the wall-clock time of this thread. Rejects while another one is collected.
 * @param {TimeProfilerOptions} options
 * @returns {Promise<Profile>}
 */
declare function profileTime(options: TimeProfilerOptions): Promise<Profile>;
/**
 * Begins a profile of the wall-clock time of this thread; returns the function that ends it, which waits for some milliseconds.
 * Throws while another one is collected.
 * @param {number} [intervalMicros] see {@link TimeProfilerOptions}
 * @param {string} [_name] without effect
 * @param {SourceMapper} [_sourceMapper] without effect
 * @param {boolean} [_lineNumbers] without effect
 * @returns {() => Profile}
 */
declare function startTime(intervalMicros?: number, _name?: string, _sourceMapper?: SourceMapper, _lineNumbers?: boolean): () => Profile;
/**
 * Starts the heap profile. A heap profile that runs already keeps its interval. Throws if `heap.start` started it before.
 * @param {number} intervalBytes average number of bytes between samples
 * @param {number} stackDepth without effect: `maxStackDepth` limits stacks
 */
declare function startHeap(intervalBytes: number, stackDepth: number): void;
/** Ends the heap profile, unless the program's own profiler has it. */
declare function stopHeap(): void;
/**
 * The objects in use in this process now, by the stack that allocated them. Waits for some milliseconds. Without `heap.start` the
 * first call starts the heap profile, at 512 KiB; what was allocated before is not in it.
 * @param {string} [ignoreSamplePath] samples with a file whose path contains it are left out
 * @param {SourceMapper} [_sourceMapper] without effect
 * @returns {Profile}
 */
declare function profileHeap(ignoreSamplePath?: string, _sourceMapper?: SourceMapper): Profile;
/**
 * The objects in use as a tree from the root, in the form of V8's allocation profile. Starts the heap profile as `heap.profile` does.
 * @returns {AllocationProfileNode}
 */
declare function v8Profile(): AllocationProfileNode;
