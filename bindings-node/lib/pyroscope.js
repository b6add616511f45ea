'use strict';
// The API of `@pyroscope/nodejs` as thin aliases: its documented snippets run with the import renamed. Options without an
// equivalent are accepted; a warning names those that change the result.

require('./first_copy.js');
const copies = require('./copies.js');
const { SpanprofError } = require('./errors.js');
const hostLog = require('./host_log.js');
const lifecycle = require('./lifecycle.js');
const scope = require('./scope.js');
const { expressMiddleware } = require('./express.js');
const { fastifyPlugin } = require('./fastify.js');
const { folder } = require('./native.js');

/**
 * Options of `@pyroscope/nodejs`; those of spanprof are accepted too and take precedence.
 * @typedef {Omit<lifecycle.Options, 'wall' | 'heap'> & {
 *   appName?: string | undefined, serverAddress?: string | undefined, authToken?: string | undefined,
 *   basicAuthUser?: string | undefined, basicAuthPassword?: string | undefined, tenantID?: string | undefined,
 *   flushIntervalMs?: number | undefined, sourceMapper?: unknown, stripFilenames?: string | undefined,
 *   shortenPaths?: boolean | undefined,
 *   wall?: boolean | {samplingDurationMs?: number | undefined, samplingIntervalMicros?: number | undefined,
 *     collectCpuTime?: boolean | undefined} | undefined,
 *   heap?: boolean | {samplingIntervalBytes?: number | undefined, stackDepth?: number | undefined} | undefined,
 * }} PyroscopeOptions
 */

const IGNORED_OPTIONS = new Set(['sourceMapper', 'stripFilenames', 'shortenPaths']);

/** The options of `init`. @type {lifecycle.Options} */
let configured = {};
/** The error of `init`, which `start` throws. @type {Error | undefined} */
let unreadable;

/**
 * The variables; none where nothing is profiled: Deno asks for a permission to read them, or throws.
 * @returns {NodeJS.ProcessEnv}
 */
const variables = () => (folder === '' ? {} : process.env);

/**
 * The value of Pyroscope's variable `name`, unless one of `higher` precedence is set. The core reads the other variables.
 * @param {string} name
 * @param {string[]} higher
 */
function variable(name, ...higher) {
  const values = variables();
  return higher.some((other) => values[other]) ? undefined : values[name] || undefined;
}

/**
 * @param {PyroscopeOptions} options
 * @returns {lifecycle.Options}
 */
function translated(options) {
  /** @type {Record<string, any>} */
  const ours = {};
  /** @type {Record<string, string>} */
  const headers = {};
  const { appName, serverAddress, authToken, basicAuthUser, basicAuthPassword, tenantID, flushIntervalMs, wall, heap, ...rest } =
    options;
  if (appName !== undefined) ours.serviceName = appName;
  const address = variables().PYROSCOPE_ADHOC_SERVER_ADDRESS || serverAddress;
  if (address) ours.endpoint = address;
  const milliseconds = flushIntervalMs ?? variable('PYROSCOPE_FLUSH_INTERVAL_MS', 'SPANPROF_UPLOAD_INTERVAL');
  if (milliseconds !== undefined) ours.uploadInterval = Number(milliseconds) / 1000;
  const option = typeof wall === 'object' && wall !== null ? wall.samplingIntervalMicros : undefined;
  const micros = option ?? variable('PYROSCOPE_WALL_SAMPLING_INTERVAL_MICROS', 'SPANPROF_SAMPLE_RATE');
  if (micros !== undefined && Number(micros) > 0) ours.sampleRate = Math.max(1, Math.round(1e6 / Number(micros)));
  if (typeof wall === 'boolean') ours.wall = wall;
  if (typeof heap === 'object' && heap !== null) {
    ours.heap = true;
    if (heap.samplingIntervalBytes !== undefined) ours.heapInterval = heap.samplingIntervalBytes;
  } else if (heap !== undefined) {
    ours.heap = heap;
  }
  if (authToken) headers.authorization = `Bearer ${authToken}`;
  if (basicAuthUser || basicAuthPassword) {
    const pair = Buffer.from(`${basicAuthUser ?? ''}:${basicAuthPassword ?? ''}`).toString('base64');
    headers.authorization = `Basic ${pair}`;
  }
  if (tenantID) headers['x-scope-orgid'] = tenantID;
  for (const [key, value] of Object.entries(rest)) {
    if (!IGNORED_OPTIONS.has(key) && value !== undefined) ours[key] = value;
  }
  // Some programs pass an unset variable as an empty text.
  if (ours.endpoint === '') delete ours.endpoint;
  if (Object.keys(headers).length > 0) ours.headers = { ...headers, ...ours.headers };
  return ours;
}

/**
 * Stores the configuration for `start`. The wall clock and the heap profile are on unless `wall` or `heap` is false: they are
 * Pyroscope's profiles.
 * @param {PyroscopeOptions} [options]
 */
function init(options) {
  try {
    configured = { wall: true, heap: true, ...translated(options ?? {}) };
    unreadable = undefined;
  } catch (error) {
    unreadable = SpanprofError.unreadable(error);
  }
}

/**
 * Starts with the options of `init`; options given here take precedence. See `start` of the package.
 * @param {PyroscopeOptions} [options]
 * @returns {boolean}
 */
function start(options) {
  if (unreadable !== undefined) throw unreadable;
  return lifecycle.start({ ...configured, ...readable(options) });
}

/** @param {PyroscopeOptions | undefined} options */
function readable(options) {
  try {
    return translated(options ?? {});
  } catch (error) {
    throw SpanprofError.unreadable(error);
  }
}

/** Starts CPU and wall-clock profiling. */
function startWallProfiling() {
  if (!lifecycle.update({ wall: true })) lifecycle.start({ ...configured, wall: true });
}

/** Starts CPU and heap profiling. */
function startHeapProfiling() {
  if (!lifecycle.update({ heap: true })) lifecycle.start({ ...configured, heap: true });
}

/** @returns {Promise<void>} */
async function stopWallProfiling() {
  await lifecycle.stop();
}

/** Ends the heap profile; the others continue. @returns {Promise<void>} */
async function stopHeapProfiling() {
  lifecycle.update({ heap: false });
}

/**
 * Pyroscope's name of `tagWrapper`: returns the result of `fn`; the labels last across `await`.
 * @template {any[]} A
 * @template R
 * @param {scope.Labels} labels
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {R}
 */
function wrapWithLabels(labels, fn, ...args) {
  return scope.tagWrapper(labels, fn, ...args);
}

/** Accepted for compatibility; source maps are found without it. */
class SourceMapper {
  /**
   * @param {string[]} [_directories]
   * @returns {Promise<SourceMapper>}
   */
  static async create(_directories) {
    return new SourceMapper();
  }
}

module.exports = copies.exported('pyroscope', {
  init,
  start,
  stop: lifecycle.stop,
  startWallProfiling,
  startCpuProfiling: startWallProfiling,
  stopWallProfiling,
  stopCpuProfiling: stopWallProfiling,
  startHeapProfiling,
  stopHeapProfiling,
  wrapWithLabels,
  setLabels: scope.setLabels,
  getLabels: scope.getLabels,
  setWallLabels: scope.setLabels,
  getWallLabels: scope.getLabels,
  setLogger: hostLog.setLogger,
  SourceMapper,
  expressMiddleware,
  fastifyMiddleware: fastifyPlugin,
});
