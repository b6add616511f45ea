'use strict';
// The API of the package `pprof`: its programs run with only the import changed. The samples are those of this profiler: a profile
// is collected beside the continuous one, or with a temporary profiler if none runs (`temporary.js`).
//
// A profile is a plain object that is encoded on request: programs read and change its samples, labels and types. V8's own CPU profiler
// is not used: it would be a second sampler with SIGPROF, without native frames, inlined functions and source maps.

const fs = require('node:fs');
const { isMainThread } = require('node:worker_threads');
const zlib = require('node:zlib');

require('./first_copy.js');
const copies = require('./copies.js');
const { native } = require('./native.js');
const format = require('./pprof_format.js');
const hostLog = require('./host_log.js');
const lifecycle = require('./lifecycle.js');
const { Promise } = require('./primordials.js');
const temporary = require('./temporary.js');

temporary.setLifecycle(lifecycle);

/** @typedef {format.Profile} Profile */
/** @typedef {{name?: string, scriptName: string, scriptId?: number, lineNumber?: number, columnNumber?: number, children: ProfileNode[]}} ProfileNode */
/** @typedef {ProfileNode & {hitCount: number}} TimeProfileNode */
/** @typedef {{sizeBytes: number, count: number}} Allocation */
/** @typedef {ProfileNode & {allocations: Allocation[], children: AllocationProfileNode[]}} AllocationProfileNode */

/**
 * @typedef {object} TimeProfilerOptions
 * @property {number} durationMillis milliseconds
 * @property {number} [intervalMicros] microseconds between samples, at least 1000; 1000 by default. A profiler that runs already keeps
 *   its rate
 * @property {string} [name] without effect
 * @property {SourceMapper} [sourceMapper] without effect: source maps are read without it
 * @property {boolean} [lineNumbers] without effect: the executing line is always recorded
 */

const DEFAULT_INTERVAL_MICROS = 1000;
/** Least and greatest `wallRate`, in Hz. */
const RATES = [1, 1000];
/** Settings of a heap profile that `heap.profile` starts. */
const [DEFAULT_INTERVAL_BYTES, DEFAULT_STACK_DEPTH] = [512 * 1024, 64];
/** Greatest `heapInterval`, in bytes. */
const MAX_HEAP_INTERVAL = 64 << 20;

const clamped = (/** @type {number} */ value, /** @type {number} */ least, /** @type {number} */ greatest) =>
  Math.min(greatest, Math.max(least, Math.round(value) || least));

/** Accepted for compatibility: the profiler finds source maps without it, and positions in profiles are those of the sources. */
class SourceMapper {
  constructor() {
    /** @type {Map<string, unknown>} */
    this.infoMap = new Map();
  }

  /**
   * @param {string[]} [_searchDirs]
   * @returns {Promise<SourceMapper>}
   */
  static async create(_searchDirs) {
    return new SourceMapper();
  }

  /**
   * @param {string} _inputPath
   * @returns {boolean}
   */
  hasMappingInfo(_inputPath) {
    return false;
  }

  /**
   * @template T
   * @param {T} location
   * @returns {T} the same location
   */
  mappingInfo(location) {
    return location;
  }
}

/**
 * A profile of the native module with the sample types of the package `pprof`.
 * @param {Buffer | null} pprof
 * @param {[string, string][]} types
 * @param {(value: (type: string) => number, period: number) => number[]} values of the new types from those of a sample
 * @returns {Profile}
 */
function translated(pprof, types, values) {
  const profile = format.decode(pprof === null || pprof.length === 0 ? Buffer.alloc(0) : zlib.gunzipSync(pprof));
  const texts = profile.stringTable;
  if (texts.length === 0) texts.push('');
  const index = (/** @type {string} */ text) => {
    const position = texts.indexOf(text);
    return position >= 0 ? position : texts.push(text) - 1;
  };
  const period = Number(profile.period ?? 0);
  const positions = new Map(
    profile.sampleType.map((/** @type {any} */ sampleType, /** @type {number} */ i) => [texts[sampleType.type], i]),
  );
  for (const sample of profile.sample) {
    const before = sample.value;
    sample.value = values((type) => before[positions.get(type) ?? -1] ?? 0, period);
  }
  profile.sampleType = types.map(([type, unit]) => ({ type: index(type), unit: index(unit) }));
  profile.periodType = profile.sampleType.at(-1);
  // As in the package, whose readers show the last type first.
  delete profile.defaultSampleType;
  return profile;
}

/**
 * @param {Buffer} pprof
 * @param {number} intervalMicros
 * @param {{unixMs: number, nanos: number}} duration its beginning and its length
 * @returns {Profile}
 */
function timeProfile(pprof, intervalMicros, { unixMs, nanos }) {
  const interval = (/** @type {number} */ periodNs) => (periodNs > 0 ? periodNs / 1000 : intervalMicros);
  const profile = translated(pprof, [['sample', 'count'], ['wall', 'microseconds']], (value, period) => {
    const micros = Math.round(value('wall') / 1000);
    return [Math.max(1, Math.round(micros / interval(period))), micros];
  });
  profile.period = Math.round(interval(Number(profile.period ?? 0)));
  profile.timeNanos = unixMs * 1e6;
  profile.durationNanos = nanos;
  return profile;
}

let isTimeProfiling = false;

/**
 * Begins a profile of the wall-clock time of this thread.
 * @param {number} intervalMicros
 */
function beginTimeProfile(intervalMicros) {
  if (isTimeProfiling) throw new Error('already profiling');
  isTimeProfiling = true;
  temporary.acquire('time', { wallRate: clamped(1e6 / intervalMicros, RATES[0], RATES[1]) });
  const collection = new native.WallCollection();
  const [unixMs, begunMs] = [native.unixMilliseconds(), native.monotonicMilliseconds()];
  // The end waits for samples that were taken before it.
  const duration = () => ({ unixMs, nanos: Math.round((native.monotonicMilliseconds() - begunMs) * 1e6) });
  const resume = () => collection.resume();
  temporary.resumptions.add(resume);
  const released = () => {
    isTimeProfiling = false;
    temporary.resumptions.delete(resume);
    return temporary.release('time', {});
  };
  return {
    /** @returns {Promise<Profile>} */
    async end() {
      const profiled = duration();
      const pprof = await collection.end();
      if (released()) await temporary.stop();
      return timeProfile(pprof, intervalMicros, profiled);
    },
    /** @returns {Profile} */
    endSync() {
      const profiled = duration();
      const pprof = collection.endSync();
      if (released()) temporary.stopSync();
      return timeProfile(pprof, intervalMicros, profiled);
    },
  };
}

/**
 * Collects a profile of the wall-clock time of this thread. Rejects while another one is collected.
 * @param {TimeProfilerOptions} options
 * @returns {Promise<Profile>}
 */
async function profileTime(options) {
  const running = beginTimeProfile(options.intervalMicros || DEFAULT_INTERVAL_MICROS);
  await native.sleep(options.durationMillis);
  return running.end();
}

/**
 * Begins a profile of the wall-clock time of this thread; returns the function that ends it, which waits for some milliseconds.
 * Throws while another one is collected.
 * @param {number} [intervalMicros] see {@link TimeProfilerOptions}
 * @param {string} [_name] without effect
 * @param {SourceMapper} [_sourceMapper] without effect
 * @param {boolean} [_lineNumbers] without effect
 * @returns {() => Profile}
 */
function startTime(intervalMicros = DEFAULT_INTERVAL_MICROS, _name, _sourceMapper, _lineNumbers) {
  const running = beginTimeProfile(intervalMicros || DEFAULT_INTERVAL_MICROS);
  /** @type {Profile | undefined} */
  let profile;
  return function stop() {
    profile ??= running.endSync();
    return profile;
  };
}

/** @type {{intervalBytes: number, stackDepth: number} | undefined} */
let heapSettings;
/** Whether `heap.profile` started the heap profile. */
let isHeapImplied = false;
let hasWarnedOfHeap = false;

/**
 * Starts the heap profile. A heap profile that runs already keeps its interval. Throws if `heap.start` started it before.
 * @param {number} intervalBytes average number of bytes between samples
 * @param {number} stackDepth without effect: `maxStackDepth` limits stacks
 */
function startHeap(intervalBytes, stackDepth) {
  if (isHeapImplied) stopHeap();
  if (heapSettings !== undefined) {
    const { intervalBytes: interval, stackDepth: depth } = heapSettings;
    throw new Error(`Heap profiler is already started with intervalBytes ${interval} and stackDepth ${depth}`);
  }
  heapSettings = { intervalBytes, stackDepth };
  temporary.acquire('heap', { heap: true, heapInterval: clamped(intervalBytes, 1, MAX_HEAP_INTERVAL) });
}

/** Ends the heap profile, unless the program's own profiler has it. */
function stopHeap() {
  if (heapSettings === undefined) return;
  heapSettings = undefined;
  isHeapImplied = false;
  if (temporary.release('heap', { heap: false })) temporary.stopSync();
}

/**
 * The objects in use in this process now, by the stack that allocated them. Waits for some milliseconds. Without `heap.start` the
 * first call starts the heap profile, at 512 KiB; what was allocated before is not in it.
 * @param {string} [ignoreSamplePath] samples with a file whose path contains it are left out
 * @param {SourceMapper} [_sourceMapper] without effect
 * @returns {Profile}
 */
function profileHeap(ignoreSamplePath, _sourceMapper) {
  if (heapSettings === undefined) {
    startHeap(DEFAULT_INTERVAL_BYTES, DEFAULT_STACK_DEPTH);
    isHeapImplied = true;
  }
  const pprof = native.objectsInUse();
  if (pprof === null && native.isRunning() && !hasWarnedOfHeap) {
    hasWarnedOfHeap = true;
    hostLog.log('warning', 'spanprof: heap.profile() is empty: the running profiler has no heap profile; start it with heap: true');
  }
  const profile = translated(pprof, [['objects', 'count'], ['space', 'bytes']], (value) => [value('inuse_objects'), value('inuse_space')]);
  profile.period ??= heapSettings?.intervalBytes;
  profile.timeNanos = native.unixMilliseconds() * 1e6;
  delete profile.durationNanos;
  if (ignoreSamplePath) {
    const frames = framesByLocation(profile);
    profile.sample = profile.sample.filter((sample) =>
      !sample.locationId.some((id) => frames.get(id)?.some((frame) => frame.scriptName.includes(ignoreSamplePath))));
  }
  return profile;
}

/**
 * The frames of each location, leaf first.
 * @param {Profile} profile
 * @returns {Map<unknown, {name: string, scriptName: string, lineNumber: number, columnNumber: number}[]>}
 */
function framesByLocation(profile) {
  const functions = new Map(profile.function.map((definition) => [definition.id, definition]));
  const text = (/** @type {any} */ index) => profile.stringTable[Number(index ?? 0)] ?? '';
  return new Map(profile.location.map(({ id, line }) => [id, (line ?? []).map((frame) => ({
    name: text(functions.get(frame.functionId ?? 0)?.name),
    scriptName: text(functions.get(frame.functionId ?? 0)?.filename),
    lineNumber: Number(frame.line ?? 0),
    columnNumber: Number(frame.column ?? 0),
  }))]));
}

/**
 * The objects in use as a tree from the root, in the form of V8's allocation profile. Starts the heap profile as `heap.profile` does.
 * @returns {AllocationProfileNode}
 */
function v8Profile() {
  const profile = profileHeap();
  const frames = framesByLocation(profile);
  /** @type {(frame: {name: string, scriptName: string, lineNumber: number, columnNumber: number}) => AllocationProfileNode} */
  const node = (frame) => ({ scriptId: 0, ...frame, children: [], allocations: [] });
  const root = node({ name: '(root)', scriptName: '', lineNumber: 0, columnNumber: 0 });
  /** @type {Map<AllocationProfileNode, Map<string, AllocationProfileNode>>} */
  const children = new Map();
  for (const { locationId, value } of profile.sample) {
    let parent = root;
    for (const frame of locationId.flatMap((id) => frames.get(id) ?? []).reverse()) {
      const childrenByKey = children.get(parent) ?? new Map();
      children.set(parent, childrenByKey);
      const key = `${frame.name}\0${frame.scriptName}\0${frame.lineNumber}\0${frame.columnNumber}`;
      let child = childrenByKey.get(key);
      if (child === undefined) {
        child = node(frame);
        childrenByKey.set(key, child);
        parent.children.push(child);
      }
      parent = child;
    }
    const [count, bytes] = value.map(Number);
    if (count > 0) parent.allocations.push({ sizeBytes: bytes / count, count });
  }
  return root;
}

/**
 * The profile as gzip-compressed pprof.
 * @param {Profile} profile
 * @returns {Promise<Buffer>}
 */
async function encode(profile) {
  const bytes = format.encode(profile);
  return new Promise((resolve, reject) => {
    zlib.gzip(bytes, (error, compressed) => (error === null ? resolve(compressed) : reject(error)));
  });
}

/**
 * As `encode`, at once.
 * @param {Profile} profile
 * @returns {Buffer}
 */
function encodeSync(profile) {
  return zlib.gzipSync(format.encode(profile));
}

const time = { profile: profileTime, start: startTime };
const heap = { start: startHeap, stop: stopHeap, profile: profileHeap, v8Profile };

module.exports = copies.exported('pprof', { time, heap, encode, encodeSync, SourceMapper, setLogger: hostLog.setLogger });

// `node --require spanprof/pprof app.js` profiles the whole run.
if (isMainThread && /** @type {NodeJS.Module} */ (/** @type {unknown} */ (module)).parent?.id === 'internal/preload') {
  const { start } = module.exports.time;
  const stop = start();
  process.on('exit', () => {
    try {
      fs.writeFileSync(`pprof-profile-${process.pid}.pb.gz`, module.exports.encodeSync(stop()));
    } catch (error) {
      hostLog.log('warning', `spanprof: the profile was not written: ${error instanceof Error ? error.message : error}`);
    }
  });
}
