'use strict';
// Begin and end, and what is hooked into the process while profiling. Not here: what a setting means (native core).

const path = require('node:path');
const { isMainThread } = require('node:worker_threads');
const { native } = require('./native.js');
const { SpanprofError } = require('./errors.js');
const { toJson } = require('./options.js');
const hostLog = require('./host_log.js');
const sampling = require('./sampling.js');
const scope = require('./scope.js');
const opentelemetry = require('./opentelemetry.js');
const workers = require('./workers.js');

/**
 * Keys of docs/configuration.md in camelCase; what is left out comes from variables, the file and the defaults.
 * @typedef {object} Options
 * @property {boolean} [enabled]
 * @property {string} [serviceName]
 * @property {Record<string, string>} [resourceAttributes]
 * @property {Record<string, string>} [tags]
 * @property {number} [sampleRate] Hz
 * @property {'auto' | 'thread_timer' | 'perf'} [clock]
 * @property {boolean} [cpu]
 * @property {boolean} [wall]
 * @property {number} [wallRate] Hz
 * @property {number} [wallMaxThreads]
 * @property {number} [uploadInterval] seconds
 * @property {number} [maxStackDepth]
 * @property {number} [maxStacks]
 * @property {number} [maxLabelSets]
 * @property {number} [maxContexts]
 * @property {number} [maxLabelValueBytes]
 * @property {boolean} [keepTimestamps]
 * @property {string} [endpoint]
 * @property {'http/protobuf' | 'grpc'} [protocol]
 * @property {Record<string, string>} [headers]
 * @property {'gzip' | 'none'} [compression]
 * @property {number} [timeout] seconds
 * @property {string} [certificate]
 * @property {string} [clientKey]
 * @property {string} [clientCertificate]
 * @property {boolean} [insecure]
 * @property {object[]} [destinations]
 * @property {string} [fileDirectory]
 * @property {number} [fileKeep]
 * @property {number} [queueMaxBytes]
 * @property {number} [maxProfileSize]
 * @property {number} [stopTimeout] seconds
 * @property {boolean} [threadLabels]
 * @property {boolean} [serviceNameAttribute]
 * @property {boolean} [inheritThreads] whether a worker thread begins with the labels and the span of the scope that makes it;
 *   false unless said otherwise
 * @property {boolean} [signals]
 * @property {string} [configFile]
 * @property {boolean} [workerThreads] whether worker threads are known by their JavaScript stacks; true unless said otherwise
 * @property {number} [eventLoopBlock] milliseconds: a turn of an event loop that takes longer is reported with its stacks; 50
 *   unless said otherwise, 0 for none
 * @property {sampling.StackWalk} [stackWalk] the best means to be tried; the first that works in this Node unless said otherwise
 */

let atExit = false;

/**
 * Starts profiling this process; true when samples are being taken afterwards. Calling it again while running changes
 * nothing. Throws {@link SpanprofError} for an impossible configuration.
 * @param {Options} [options]
 * @returns {boolean}
 */
function start(options) {
  const { workerThreads = true, eventLoopBlock = 50, stackWalk = 'auto', ...config } = options ?? {};
  const wasRunning = native.isRunning();
  let running;
  try {
    running = sampling.begin(toJson(config), programName(), stackWalk);
  } catch (error) {
    throw SpanprofError.of(error);
  } finally {
    hostLog.handOver();
  }
  if (running) {
    if (!wasRunning) native.reportTurnsLongerThan(milliseconds(eventLoopBlock));
    scope.beginFollowing();
    opentelemetry.install();
    if (workerThreads) workers.install();
    hostLog.handOverAfter(Number(native.setting('upload_interval')));
    if (!atExit && isMainThread) {
      atExit = true;
      process.once('exit', stopAtExit);
    }
  }
  return running;
}

/** @param {unknown} value */
function milliseconds(value) {
  const number = Number(value);
  return number > 0 && number < 3_600_000 ? number : 0;
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
    hostLog.handOver();
  } catch {
    // The program ends as it would without us.
  }
}

/**
 * Stops profiling and sends the last window within `stopTimeout` seconds; true when everything was delivered.
 * @returns {Promise<boolean>}
 */
async function stop() {
  try {
    sampling.end();
    return await native.stop();
  } catch {
    return false;
  } finally {
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
    return native.update(toJson(options));
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
