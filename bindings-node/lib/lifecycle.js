'use strict';
// Start and stop, and the hooks installed in the process in between. Not here: the meaning of a setting (native core).

const path = require('node:path');
const { isMainThread } = require('node:worker_threads');
const { native } = require('./native.js');
const { SpanprofError } = require('./errors.js');
const settings = require('./options.js');
const hostLog = require('./host_log.js');
const sampling = require('./sampling.js');
const scope = require('./scope.js');
const signals = require('./signals.js');
const { emitWarning } = require('./primordials.js');
const temporary = require('./temporary.js');
const thread = require('./thread.js');

/**
 * Names and their values; undefined ones are left out. Declared as `object`, so that TypeScript interfaces are accepted.
 * @typedef {Readonly<Record<string, string | number | boolean | null | undefined>> | object} Texts
 */

/**
 * Keys of docs/reference/configuration.md in camelCase; others come from environment variables, the configuration file and the defaults.
 * @typedef {object} Options
 * @property {boolean | undefined} [enabled]
 * @property {string | undefined} [serviceName]
 * @property {Texts | undefined} [resourceAttributes]
 * @property {Texts | undefined} [tags]
 * @property {number | undefined} [sampleRate] Hz
 * @property {'auto' | 'thread_timer' | 'perf' | undefined} [clock]
 * @property {boolean | undefined} [cpu]
 * @property {boolean | undefined} [wall]
 * @property {number | undefined} [wallRate] Hz
 * @property {'default' | 'all' | undefined} [profiles]
 * @property {readonly string[] | undefined} [ownCode] prefixes of paths of own code
 * @property {boolean | undefined} [gc]
 * @property {boolean | undefined} [heap]
 * @property {number | undefined} [heapInterval] bytes
 * @property {number | undefined} [heapLiveSamples]
 * @property {string | undefined} [heapPeakDirectory]
 * @property {boolean | undefined} [lock]
 * @property {number | undefined} [lockThreshold] seconds
 * @property {boolean | undefined} [offCpu]
 * @property {boolean | undefined} [threads]
 * @property {number | undefined} [uploadInterval] seconds
 * @property {number | undefined} [maxStackDepth]
 * @property {'off' | 'on' | 'all' | undefined} [nativeFrames]
 * @property {boolean | undefined} [keepTimestamps]
 * @property {boolean | undefined} [requests] whether requests are followed without code; true by default
 * @property {'all' | 'tail' | undefined} [retention]
 * @property {number | 'p99' | 'none' | undefined} [tailDuration]
 * @property {number | undefined} [tailCpuShare]
 * @property {number | undefined} [tailAllocatedBytes]
 * @property {boolean | undefined} [tailErrors]
 * @property {string | undefined} [endpoint]
 * @property {'http/protobuf' | 'grpc' | undefined} [protocol]
 * @property {Readonly<Record<string, string | undefined>> | undefined} [headers]
 * @property {'gzip' | 'none' | undefined} [compression]
 * @property {number | undefined} [timeout] seconds
 * @property {string | undefined} [certificate]
 * @property {string | undefined} [clientKey]
 * @property {string | undefined} [clientCertificate]
 * @property {boolean | undefined} [insecure]
 * @property {'trace_and_span' | 'span' | 'none' | undefined} [link]
 * @property {readonly object[] | undefined} [destinations]
 * @property {string | undefined} [fileDirectory]
 * @property {number | undefined} [fileKeep]
 * @property {number | undefined} [fileMaxAge] seconds
 * @property {number | undefined} [fileMaxBytes]
 * @property {boolean | undefined} [metrics] whether the numbers of `stats()` are sent as OpenTelemetry metrics
 * @property {number | undefined} [metricsInterval] seconds
 * @property {string | undefined} [metricsEndpoint]
 * @property {Readonly<Record<string, string | undefined>> | undefined} [metricsHeaders]
 * @property {boolean | undefined} [redaction]
 * @property {readonly object[] | undefined} [redactionRules]
 * @property {string | undefined} [redactionHashKey]
 * @property {string | undefined} [output] file for the whole run: `.html`, `.pb.gz` or `.folded`
 * @property {string | undefined} [pull] `host:port` at which profiles are pulled
 * @property {string | undefined} [pullToken]
 * @property {number | undefined} [queueMaxBytes]
 * @property {string | undefined} [bufferDirectory]
 * @property {number | undefined} [bufferMaxBytes]
 * @property {number | undefined} [maxProfileSize]
 * @property {number | undefined} [stopTimeout] seconds
 * @property {boolean | undefined} [threadLabels]
 * @property {boolean | undefined} [inheritThreads] whether a worker thread starts with the labels and the span of the scope that creates
 *   it; false by default
 * @property {boolean | undefined} [signals]
 * @property {number | undefined} [cpuBudget] share of one core, or of a CPU quota below one processor; 0 for no limit
 * @property {number | undefined} [sampleRateMax] Hz
 * @property {number | undefined} [adaptiveThreshold] share of the available CPU time and memory
 * @property {boolean | undefined} [loadShedding] false: load is never shed
 * @property {number | undefined} [loadSheddingThreshold] share of the available CPU time and memory
 * @property {string | undefined} [configFile]
 * @property {string | undefined} [cpuDutyCycle] such as `15s/5m`
 * @property {string | undefined} [heapDutyCycle] such as `15s/5m`
 * @property {boolean | undefined} [workerThreads] whether worker threads are profiled by their JavaScript stacks; true by default
 * @property {number | undefined} [eventLoopBlock] milliseconds: a longer turn of an event loop is reported with its stacks; 50 by
 *   default, 0 for none
 * @property {sampling.StackWalk | undefined} [stackWalk] the first walk method to try; by default the first that works in this Node.js
 * @property {readonly NodeJS.Signals[] | undefined} [stopOnSignals] signals before whose default action the last window is sent; none
 *   by default
 */

let hasExitHandler = false;

/**
 * Starts profiling this process; returns whether samples are being taken afterwards. A call while running changes nothing.
 * Throws {@link SpanprofError} for an impossible option, and for nothing else: where this process cannot be profiled, it returns
 * false and one warning says why.
 * @param {Options} [options]
 * @returns {boolean}
 */
function start(options) {
  const { json, stopOnSignals } = settings.read(options);
  // Before it is replaced: an invalid configuration changes nothing.
  let isReplaced = false;
  let wasRunning = native.isRunning();
  try {
    const values = native.optionValues(json);
    if (values === null) return false;
    const [eventLoopBlock, workerThreads, stackWalk] = values;
    const walk = /** @type {sampling.StackWalk} */ (stackWalk);
    isReplaced = temporary.replace();
    if (isReplaced) wasRunning = false;
    // A worker thread enrolls in the running profiler, whose settings are those of the process.
    const running = !isMainThread && wasRunning ? native.registerThread() : sampling.start(json, programName(), walk);
    // Also while disabled: the profiler may be enabled later.
    if (running || native.setting('enabled') !== null) {
      if (!wasRunning) native.reportTurnsLongerThan(Number(eventLoopBlock));
      installHooks(workerThreads === 'true', stopOnSignals);
    }
    if (isReplaced) temporary.resume();
    return running;
  } catch (error) {
    const failure = SpanprofError.of(error);
    // The native module throws for impossible options only. Other errors are those of the runtime, such as a lack of memory.
    if (failure.kind !== '') throw failure;
    if (!wasRunning) stopSync();
    hostLog.log('warning', `spanprof: this process is not profiled: ${failure.message}`);
    return false;
  } finally {
    hostLog.flush();
  }
}

/**
 * Installs what samples need in the process.
 * @param {boolean} withWorkers
 * @param {readonly string[]} stopOnSignals
 */
function installHooks(withWorkers, stopOnSignals) {
  scope.profilingStarted();
  thread.linkOpenTelemetry();
  thread.followRequests();
  if (withWorkers) thread.replaceWorker();
  hostLog.flushAsQueued();
  if (!isMainThread) return;
  if (!hasExitHandler) {
    process.once('exit', stopAtExit);
    process.on('removeListener', signals.listenerRemoved);
  }
  hasExitHandler = true;
  signals.install(stopOnSignals, stop);
}

/** The script's name without its extension; of an `index.js` its directory's name; empty for `-e` and the REPL. */
function programName() {
  const script = process.argv[1];
  if (!script) return '';
  const { name, dir } = path.parse(script);
  return name === 'index' ? path.basename(dir) : name;
}

/**
 * As `start`, for preloading: an error becomes a warning.
 * @param {Options} [options]
 */
function startQuietly(options) {
  try {
    return start(options);
  } catch (error) {
    emitWarning(`not profiling: ${error instanceof Error ? error.message : error}`);
    return false;
  }
}

function stopAtExit() {
  stopSync();
  hostLog.flushAtExit();
}

/** As `stop`, on this thread. */
function stopSync() {
  try {
    native.stopSync();
  } catch {
    // The program continues.
  }
}

/**
 * Stops profiling and sends the last window within `stopTimeout` seconds; returns whether every window since the start was
 * delivered.
 * @returns {Promise<boolean>}
 */
async function stop() {
  try {
    signals.uninstallAll();
    return await native.stop();
  } catch {
    return false;
  } finally {
    hostLog.flush();
  }
}

/**
 * Sends the samples so far; returns whether everything was delivered within `timeout` seconds.
 * @param {number} [timeout] seconds; `stopTimeout` by default
 * @returns {Promise<boolean>}
 */
function flush(timeout) {
  return delivery(native.flush, timeout);
}

/**
 * Whether a native call has delivered within `timeout` seconds.
 * @param {(milliseconds?: number) => Promise<boolean>} send
 * @param {number} [timeout]
 */
async function delivery(send, timeout) {
  try {
    return await send(timeout === undefined ? undefined : Math.max(0, Number(timeout) * 1000));
  } catch {
    return false;
  } finally {
    hostLog.flush();
  }
}

/**
 * Changes settings while running; false when the profiler does not run. Throws {@link SpanprofError} for a setting that
 * cannot change while running, and for an invalid value.
 * @param {Options} options
 * @returns {boolean}
 */
function update(options) {
  try {
    return native.update(settings.toJson(options));
  } catch (error) {
    throw SpanprofError.of(error);
  } finally {
    hostLog.flush();
  }
}

/**
 * Statistics of the profiler: samples, losses with their reasons, deliveries, settings with their sources.
 * @returns {Record<string, any>}
 */
function stats() {
  try {
    return native.stats();
  } catch {
    return {};
  }
}

/**
 * Whether this process is being profiled now: true between a `start` that returned true and `stop`.
 * @returns {boolean}
 */
function isRunning() {
  try {
    return native.isRunning();
  } catch {
    return false;
  }
}

module.exports = { start, startQuietly, stop, stopSync, flush, delivery, update, stats, isRunning };
