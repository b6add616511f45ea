'use strict';
// The names of `@pyroscope/nodejs` as thin aliases: its documented snippets run with the import renamed. Where a name has no
// meaning for us it is accepted and said.

const copies = require('./copies.js');
const { SpanprofError } = require('./errors.js');
const hostLog = require('./host_log.js');
const lifecycle = require('./lifecycle.js');
const scope = require('./scope.js');
const { expressMiddleware } = require('./express.js');
const { fastifyPlugin } = require('./fastify.js');

/**
 * Options of `@pyroscope/nodejs`; ours are taken too and win.
 * @typedef {Omit<lifecycle.Options, 'wall'> & {
 *   appName?: string | undefined, serverAddress?: string | undefined, authToken?: string | undefined,
 *   basicAuthUser?: string | undefined, basicAuthPassword?: string | undefined, tenantID?: string | undefined,
 *   flushIntervalMs?: number | undefined, sourceMapper?: unknown, stripFilenames?: string | undefined,
 *   shortenPaths?: boolean | undefined,
 *   wall?: boolean | {samplingDurationMs?: number | undefined, samplingIntervalMicros?: number | undefined,
 *     collectCpuTime?: boolean | undefined} | undefined,
 *   heap?: boolean | {samplingIntervalBytes?: number | undefined, stackDepth?: number | undefined} | undefined,
 * }} PyroscopeOptions
 */

const WITHOUT_MEANING = new Set(['sourceMapper', 'stripFilenames', 'shortenPaths', 'heap']);

/** What `init` was given. @type {lifecycle.Options} */
let configured = {};
/** Whether `start` is Pyroscope's, which profiles memory too. */
let heapIsImplied = false;
/** Why `init` could not read its options; `start` throws it. @type {Error | undefined} */
let unreadable;
let heapWasAsked = false;

/**
 * A variable that Pyroscope reads, unless one of higher rank is set. The core reads the others.
 * @param {string} name
 * @param {string[]} higher
 */
function variable(name, ...higher) {
  return higher.some((other) => process.env[other]) ? undefined : process.env[name] || undefined;
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
  const { appName, serverAddress, authToken, basicAuthUser, basicAuthPassword, tenantID, flushIntervalMs, wall, ...rest } =
    options;
  if (appName !== undefined) ours.serviceName = appName;
  const address = process.env.PYROSCOPE_ADHOC_SERVER_ADDRESS || serverAddress;
  if (address) ours.endpoint = address;
  const milliseconds = flushIntervalMs ?? variable('PYROSCOPE_FLUSH_INTERVAL_MS', 'SPANPROF_UPLOAD_INTERVAL');
  if (milliseconds !== undefined) ours.uploadInterval = Number(milliseconds) / 1000;
  const asked = typeof wall === 'object' && wall !== null ? wall.samplingIntervalMicros : undefined;
  const micros = asked ?? variable('PYROSCOPE_WALL_SAMPLING_INTERVAL_MICROS', 'SPANPROF_SAMPLE_RATE');
  if (micros !== undefined && Number(micros) > 0) ours.sampleRate = Math.max(1, Math.round(1e6 / Number(micros)));
  if (typeof wall === 'boolean') ours.wall = wall;
  if (authToken) headers.authorization = `Bearer ${authToken}`;
  if (basicAuthUser || basicAuthPassword) {
    const pair = Buffer.from(`${basicAuthUser ?? ''}:${basicAuthPassword ?? ''}`).toString('base64');
    headers.authorization = `Basic ${pair}`;
  }
  if (tenantID) headers['x-scope-orgid'] = tenantID;
  for (const [key, value] of Object.entries(rest)) {
    if (!WITHOUT_MEANING.has(key) && value !== undefined) ours[key] = value;
  }
  // A variable that is not set is written as an empty text in many a program.
  if (ours.endpoint === '') delete ours.endpoint;
  if (rest.heap) startHeapProfiling();
  if (Object.keys(headers).length > 0) ours.headers = { ...headers, ...ours.headers };
  return ours;
}

/**
 * Takes the configuration; `start` begins, with the wall clock unless `wall` is false: it is Pyroscope's first profile.
 * @param {PyroscopeOptions} [options]
 */
function init(options) {
  try {
    configured = { wall: true, ...translated(options ?? {}) };
    heapIsImplied = options?.heap !== false;
    unreadable = undefined;
  } catch (error) {
    unreadable = SpanprofError.unreadable(error);
  }
}

/**
 * Starts with what `init` was given; options given here win. See the package's `start`.
 * @param {PyroscopeOptions} [options]
 * @returns {boolean}
 */
function start(options) {
  if (unreadable !== undefined) throw unreadable;
  if (heapIsImplied) startHeapProfiling();
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

/** Accepted; memory is not profiled by this version, which is said once. */
function startHeapProfiling() {
  if (heapWasAsked) return;
  heapWasAsked = true;
  hostLog.say('warning', "spanprof: memory is not profiled by this version; Pyroscope's heap profile is left out " +
    '(`heap: false` in `init` ends this warning)');
}

/** @returns {Promise<void>} */
async function stopWallProfiling() {
  await lifecycle.stop();
}

/** Nothing runs, nothing stops. @returns {Promise<void>} */
async function stopHeapProfiling() {}

/**
 * Pyroscope's name of `tagWrapper`: returns what `fn` returns, and the labels last through `await`.
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

/** Accepted for compatibility; source maps are found by themselves. */
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
