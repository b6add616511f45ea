'use strict';
// Replaces the native module when it cannot be loaded: every function exists, does nothing and costs next to nothing. The types
// below declare the native module's functions.

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
const noop = {
  version: () => '0',
  start: () => false,
  isEnabled: () => false,
  optionValues: () => ['0', 'false', 'auto'],
  expectSelfTest: () => {},
  selectStackWalk: () => 'none',
  stop: async () => true,
  stopSync: () => true,
  flush: async () => true,
  update: () => false,
  stats: () => ({}),
  isRunning: () => false,
  setting: () => null,
  profileTypes: () => [],
  beginRootSpan: () => {},
  endRootSpan: () => {},
  beginClientSpan: () => {},
  endClientSpan: () => {},
  nameRequest: () => {},
  adoptResource: () => {},
  beginRequest: () => '',
  endRequest: () => {},
  beginCapture: () => 0,
  captureContext: (parent) => parent,
  endCapture: async () => ({
    pprof: () => Buffer.alloc(0),
    flamegraph: () => '',
    save: () => {},
    send: async () => false,
    types: () => [],
  }),
  discardCapture: () => {},
  contextUnderSpan: () => 0,
  contextInRequest: () => 0,
  contextWithoutLabels: () => 0,
  childContext: () => 0,
  describeContext: () => ({ labelSet: 0, labels: [], traceId: '', spanId: '', localRootSpanId: '', capture: 0 }),
  setCurrent: () => {},
  contextArray: () => null,
  currentInHandler: () => 0,
  registerStorage: () => true,
  registerThread: () => false,
  delayTermination: () => {},
  reportTurnsLongerThan: () => {},
  servePulls: () => {},
  PullCall: class {
    async run() {
      return { status: 503, headers: [], body: Buffer.from('the profiler is not running\n') };
    }

    cancel() {}
  },
  WallCollection: class {
    resume() {}

    async end() {
      return Buffer.alloc(0);
    }

    endSync() {
      return Buffer.alloc(0);
    }
  },
  objectsInUse: () => null,
  onLogLines: () => {},
  sleep: async () => {},
  unixMilliseconds: () => 0,
  monotonicMilliseconds: () => 0,
  takeLogLines: () => [],
  hasStandardError: () => true,
  writeToStandardError: () => {},
};

module.exports = noop;
