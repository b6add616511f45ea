declare namespace _exports {
    export { PyroscopeOptions, Options, Labels };
}
declare namespace _exports {
    export let version: string;
    export { SpanprofError };
    export let start: (options?: pyroscope.PyroscopeOptions) => boolean;
    export let stop: typeof lifecycle.stop;
    export let flush: typeof lifecycle.flush;
    export let update: typeof lifecycle.update;
    export let stats: typeof lifecycle.stats;
    export let isRunning: typeof lifecycle.isRunning;
    export let tagWrapper: typeof scope.tagWrapper;
    export let tag_wrapper: typeof scope.tagWrapper;
    export let prepareLabels: typeof scope.prepareLabels;
    export let setLabels: typeof scope.setLabels;
    export let getLabels: typeof scope.getLabels;
    export let bind: typeof scope.bind;
    export { capture };
    export { SpanProcessor };
    export { expressMiddleware };
    export { fastifyPlugin };
    export { fastifyPlugin as fastifyMiddleware };
    export { pprofMiddleware };
    export { pprofPlugin };
    export let init: (options?: pyroscope.PyroscopeOptions) => void;
    export let wrapWithLabels: <A extends any[], R>(labels: scope.Labels, fn: (...args: A) => R, ...args: A) => R;
    export let setWallLabels: typeof scope.setLabels;
    export let getWallLabels: typeof scope.getLabels;
    export let startWallProfiling: () => void;
    export let stopWallProfiling: () => Promise<void>;
    export let startCpuProfiling: () => void;
    export let stopCpuProfiling: () => Promise<void>;
    export let startHeapProfiling: () => void;
    export let stopHeapProfiling: () => Promise<void>;
    export let setLogger: typeof import("./host_log.js").setLogger;
    export let SourceMapper: {
        new (): {};
        create(_directories?: string[]): Promise<{}>;
    };
}
export = _exports;
type PyroscopeOptions = pyroscope.PyroscopeOptions;
type Options = lifecycle.Options;
type Labels = scope.Labels;
import { SpanprofError } from "./errors.js";
import pyroscope = require("./pyroscope.js");
import lifecycle = require("./lifecycle.js");
import scope = require("./scope.js");
import { capture } from "./capture.js";
import { SpanProcessor } from "./span_processor.js";
import { expressMiddleware } from "./express.js";
import { fastifyPlugin } from "./fastify.js";
import { pprofMiddleware } from "./pull.js";
import { pprofPlugin } from "./pull.js";
