'use strict';
// Begin and end, and what is hooked into the process while profiling. Not here: what a setting means (native core).

const path = require('node:path');
const { isMainThread } = require('node:worker_threads');
const { native } = require('./native.js');
const { SpanprofError } = require('./errors.js');
const settings = require('./options.js');
const hostLog = require('./host_log.js');
const sampling = require('./sampling.js');
const scope = require('./scope.js');
const signals = require('./signals.js');
const execve = require('./execve.js');
const opentelemetry = require('./opentelemetry.js');
const workers = require('./workers.js');

/**
 * Names and their values; those that are undefined are left out. An `object`, so that an interface is one too.
 * @typedef {Readonly<Record<string, string | number | boolean | null | undefined>> | object} Texts
 */

/**
 * Keys of docs/configuration.md in camelCase; what is left out comes from variables, the file and the defaults.
 * @typedef {object} Options
 * @property {boolean | undefined} [enabled]
 * @property {string | undefined} [serviceName]
 * @property {Texts | undefined} [resourceAttributes]
 * @property {Texts | undefined} [tags]
 * @property {number | undefined} [sampleRate] Hz
 * @property {'auto' | 'thread_timer' | 'perf' | 'sigtrap' | undefined} [clock]
 * @property {boolean | undefined} [cpu]
 * @property {boolean | undefined} [wall]
 * @property {number | undefined} [wallRate] Hz
 * @property {number | undefined} [wallMaxThreads]
 * @property {number | undefined} [uploadInterval] seconds
 * @property {number | undefined} [maxStackDepth]
 * @property {number | undefined} [maxStacks]
 * @property {number | undefined} [maxLabelSets]
 * @property {number | undefined} [maxContexts]
 * @property {number | undefined} [maxLabelValueBytes]
 * @property {boolean | undefined} [keepTimestamps]
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
 * @property {boolean | undefined} [instanceAttributes]
 * @property {'as_is' | 'strict' | undefined} [labelNames]
 * @property {readonly object[] | undefined} [destinations]
 * @property {string | undefined} [fileDirectory]
 * @property {number | undefined} [fileKeep]
 * @property {string | undefined} [output] file for the whole run: `.html`, `.pb.gz` or `.folded`
 * @property {number | undefined} [queueMaxBytes]
 * @property {number | undefined} [maxProfileSize]
 * @property {number | undefined} [stopTimeout] seconds
 * @property {boolean | undefined} [threadLabels]
 * @property {boolean | undefined} [serviceNameAttribute]
 * @property {boolean | undefined} [inheritThreads] whether a worker thread begins with the labels and the span of the scope that makes it;
 *   false unless said otherwise
 * @property {boolean | undefined} [signals]
 * @property {string | undefined} [configFile]
 * @property {boolean | undefined} [workerThreads] whether worker threads are known by their JavaScript stacks; true unless said otherwise
 * @property {number | undefined} [eventLoopBlock] milliseconds: a turn of an event loop that takes longer is reported with its stacks; 50
 *   unless said otherwise, 0 for none
 * @property {sampling.StackWalk | undefined} [stackWalk] the best means to be tried; the first that works in this Node unless said otherwise
 * @property {readonly NodeJS.Signals[] | undefined} [stopOnSignals] signals before whose default action the last window is sent; none
 *   unless said otherwise
 */

let atExit = false;

/**
 * Starts profiling this process; true when samples are being taken afterwards. Calling it again while running changes
 * nothing. Throws {@link SpanprofError} for an impossible configuration.
 * @param {Options} [options]
 * @returns {boolean}
 */
function start(options) {
  const { json, stopOnSignals } = settings.read(options);
  const wasRunning = native.isRunning();
  let running;
  let [eventLoopBlock, workerThreads, stackWalk] = ['0', 'false', 'auto'];
  try {
    [eventLoopBlock, workerThreads, stackWalk] = native.optionValues(json);
    const walk = /** @type {sampling.StackWalk} */ (stackWalk);
    // A worker thread joins what runs; its settings are the process's.
    running = !isMainThread && wasRunning ? native.registerThread() : sampling.begin(json, programName(), walk);
  } catch (error) {
    const failure = SpanprofError.of(error);
    if (failure.kind !== 'second_copy') throw failure;
    // What else is loaded here is not the program's doing.
    hostLog.say('warning', `spanprof does nothing in this process: ${failure.message}`);
    return false;
  } finally {
    hostLog.handOver();
  }
  if (running) {
    if (!wasRunning) native.reportTurnsLongerThan(Number(eventLoopBlock));
    scope.beginFollowing();
    execve.install();
    opentelemetry.install();
    if (workerThreads === 'true') workers.install();
    hostLog.handOverEvery(Number(native.setting('upload_interval')));
    if (isMainThread) {
      if (!atExit) process.once('exit', stopAtExit);
      atExit = true;
      signals.install(stopOnSignals, stop);
    }
  }
  return running;
}

/** The script without its ending; of an `index.js` its folder; empty when Node runs a command line or a prompt. */
function programName() {
  const script = process.argv[1];
  if (!script) return '';
  const { name, dir } = path.parse(script);
  return name === 'index' ? path.basename(dir) : name;
}

/**
 * As `start`, for programs that did not ask themselves: an error becomes a warning.
 * @param {Options} [options]
 */
function startQuietly(options) {
  try {
    return start(options);
  } catch (error) {
    process.emitWarning(`not profiling: ${error instanceof Error ? error.message : error}`, { type: 'SpanprofWarning' });
    return false;
  }
}

function stopAtExit() {
  try {
    sampling.end();
    native.stopSync();
  } catch {
    // The program ends as it would without us.
  }
  hostLog.handOverAtExit();
}

/**
 * Stops profiling and sends the last window within `stopTimeout` seconds; true when every window since
 * the start was delivered.
 * @returns {Promise<boolean>}
 */
async function stop() {
  try {
    signals.uninstallAll();
    sampling.end();
    return await native.stop();
  } catch {
    return false;
  } finally {
    hostLog.handOverNoMore();
    hostLog.handOver();
  }
}

/**
 * Sends what was sampled so far; true when everything was delivered within `timeout` seconds.
 * @param {number} [timeout] seconds; `stopTimeout` when left out
 * @returns {Promise<boolean>}
 */
async function flush(timeout) {
  try {
    sampling.handOver();
    return await native.flush(timeout === undefined ? undefined : Math.max(0, Number(timeout) * 1000));
  } catch {
    return false;
  } finally {
    hostLog.handOver();
  }
}

/**
 * Changes settings while running; false when the profiler does not run. Throws {@link SpanprofError} for a setting that
 * cannot change while running, or cannot have this value.
 * @param {Options} options
 * @returns {boolean}
 */
function update(options) {
  try {
    return native.update(settings.toJson(options));
  } catch (error) {
    throw SpanprofError.of(error);
  } finally {
    hostLog.handOver();
  }
}

/**
 * The profiler's own health: samples, losses with their reasons, deliveries, settings with their sources.
 * @returns {Record<string, any>}
 */
function stats() {
  try {
    return native.stats();
  } catch {
    return {};
  }
}

module.exports = { start, startQuietly, stop, flush, update, stats };
