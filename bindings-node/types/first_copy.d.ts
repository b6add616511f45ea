export = load;
/**
 * A module of this copy. `require` has literal arguments, so that bundlers include the modules; it runs when another copy calls,
 * since these modules require this one.
 * @param {'index' | 'lifecycle' | 'pprof' | 'pyroscope'} module
 */
declare function load(module: "index" | "lifecycle" | "pprof" | "pyroscope"): typeof import("./lifecycle.js") | {
    init: (options?: PyroscopeOptions) => void;
    start: (options?: PyroscopeOptions) => boolean;
    stop: typeof import("./lifecycle.js").stop;
    startWallProfiling: () => void;
    startCpuProfiling: () => void;
    stopWallProfiling: () => Promise<void>;
    stopCpuProfiling: () => Promise<void>;
    startHeapProfiling: () => void;
    stopHeapProfiling: () => Promise<void>;
    wrapWithLabels: <A extends any[], R>(labels: import("./scope.js").Labels, fn: (...args: A) => R, ...args: A) => R;
    setLabels: typeof import("./scope.js").setLabels;
    getLabels: typeof import("./scope.js").getLabels;
    setWallLabels: typeof import("./scope.js").setLabels;
    getWallLabels: typeof import("./scope.js").getLabels;
    setLogger: typeof import("./host_log.js").setLogger;
    SourceMapper: {
        new (): {};
        create(_directories?: string[]): Promise<{}>;
    };
    expressMiddleware: typeof import("./express.js").expressMiddleware;
    fastifyMiddleware: typeof import("./fastify.js").fastifyPlugin;
} | {
    time: {
        profile: (options: TimeProfilerOptions) => Promise<Profile>;
        start: (intervalMicros?: number, _name?: string, _sourceMapper?: {
            infoMap: Map<string, unknown>;
            hasMappingInfo(_inputPath: string): boolean;
            mappingInfo<T>(location: T): T;
        }, _lineNumbers?: boolean) => () => Profile;
    };
    heap: {
        start: (intervalBytes: number, stackDepth: number) => void;
        stop: () => void;
        profile: (ignoreSamplePath?: string, _sourceMapper?: {
            infoMap: Map<string, unknown>;
            hasMappingInfo(_inputPath: string): boolean;
            mappingInfo<T>(location: T): T;
        }) => Profile;
        v8Profile: () => AllocationProfileNode;
    };
    encode: (profile: Profile) => Promise<Buffer>;
    encodeSync: (profile: Profile) => Buffer;
    SourceMapper: {
        new (): {
            infoMap: Map<string, unknown>;
            hasMappingInfo(_inputPath: string): boolean;
            mappingInfo<T>(location: T): T;
        };
        create(_searchDirs?: string[]): Promise<{
            infoMap: Map<string, unknown>;
            hasMappingInfo(_inputPath: string): boolean;
            mappingInfo<T>(location: T): T;
        }>;
    };
    setLogger: typeof import("./host_log.js").setLogger;
};
