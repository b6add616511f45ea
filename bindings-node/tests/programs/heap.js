'use strict';
// Allocates a known number of bytes: arrays that are kept, and arrays that are dropped. Prints the bytes. The second argument
// selects the scenario.

const inspector = require('node:inspector');
const timers = require('node:timers/promises');
const v8 = require('node:v8');
const vm = require('node:vm');
const workerThreads = require('node:worker_threads');
const spanprof = require('spanprof');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');

/** Bytes of the array literals below: the array object of four words, and a header of two words with 100 doubles. */
const ARRAY_BYTES = 32 + 16 + 800;
const LITERAL = `[${Array.from({ length: 100 }, (_, index) => `${index}.5`).join(', ')}]`;
/** Both keep their last `slots.length` arrays. */
const body = `for (let i = 0; i < count; i++) slots[i % slots.length] = ${LITERAL}; return count * ${ARRAY_BYTES};`;
const keepArrays = new Function('slots', 'count', `return function keepArrays() { ${body} }`);
const dropArrays = new Function('slots', 'count', `return function dropArrays() { ${body} }`);

// Global: the scope of a module is garbage once its code has run, and a collection may happen before the exit.
const kept = (globalThis.kept = []);
function keep(count) {
  const slots = new Array(count);
  kept.push(slots);
  return keepArrays(slots, count)();
}
function drop(count) {
  return dropArrays(new Array(256), count)();
}

/** Twice: objects of the first collection's own making are collected by the second. */
function collect() {
  gc();
  gc();
}

const { isMainThread } = workerThreads;
if (!isMainThread) {
  const count = workerThreads.workerData;
  keep(count);
  collect();
  workerThreads.parentPort.postMessage('kept');
  // Until the parent terminates it.
  for (;;) drop(1000);
}

const [, , directory, scenario] = process.argv;
const interval = 16384;
const start = (options) =>
  spanprof.start({
    serviceName: 'heap', heap: true, heapInterval: interval, cpuBudget: 0, stopTimeout: 60, destinations: [{ type: 'file', directory }], ...options,
  });
const heapStats = () => Object.fromEntries(Object.entries(spanprof.stats()).filter(([name]) => name.includes('heap')));

const scenarios = {
  /** Two windows. */
  async windows() {
    start();
    const allocated = { keepArrays: keep(20_000), dropArrays: drop(60_000) };
    await spanprof.flush(60);
    allocated.keepArrays += keep(20_000);
    allocated.dropArrays += drop(60_000);
    collect();
    await spanprof.flush(60);
    const stats = heapStats();
    return { interval, allocated, stats, delivered: await spanprof.stop() };
  },

  /** The second run starts without the objects of the first. */
  async restart() {
    start();
    keep(20_000);
    await spanprof.stop();
    start({ destinations: [{ type: 'file', directory: `${directory}/second` }] });
    const allocated = { keepArrays: keep(10_000), dropArrays: drop(30_000) };
    collect();
    await spanprof.stop();
    return { interval, allocated };
  },

  /** A stop that blocks the thread, from an exit listener. */
  async exit() {
    start();
    const allocated = { keepArrays: keep(20_000), dropArrays: drop(30_000) };
    return { interval, allocated };
  },

  /** A worker's objects end with it; many workers end while they allocate. */
  async worker() {
    start();
    const begin = (count) => {
      const worker = new workerThreads.Worker(__filename, { argv: [directory, scenario], workerData: count });
      return new Promise((resolve, reject) => worker.on('message', () => resolve(worker)).on('error', reject));
    };
    const first = await begin(20_000);
    await spanprof.flush(60);
    const during = heapStats();
    await first.terminate();
    for (let round = 0; round < 8; round++) {
      const workers = await Promise.all([begin(10), begin(10)]);
      await timers.setTimeout(round);
      await Promise.all(workers.map((worker) => worker.terminate()));
    }
    const after = heapStats();
    await spanprof.stop();
    return { interval, allocated: { keepArrays: 20_000 * ARRAY_BYTES }, during, after };
  },

  /** Another sampler is active at the start, and ends before a second start. */
  async refused() {
    const session = new inspector.Session();
    session.connect();
    session.post('HeapProfiler.startSampling');
    const running = start();
    keep(1000);
    const stats = heapStats();
    let theirs;
    session.post('HeapProfiler.stopSampling', (error, result) => { theirs = error ?? typeof result.profile.head; });
    await spanprof.stop();
    const second = start();
    const secondStats = heapStats();
    await spanprof.stop();
    return { running, stats, theirs, second, secondStats };
  },

  /** Another tool stops this profiler's sampler. */
  async stopped() {
    start();
    keep(1000);
    const session = new inspector.Session();
    session.connect();
    session.post('HeapProfiler.startSampling');
    session.post('HeapProfiler.stopSampling');
    keep(1000);
    collect();
    const stats = heapStats();
    spanprof.update({ heap: false });
    spanprof.update({ heap: true });
    const allocated = { keepArrays: keep(10_000) };
    collect();
    await spanprof.flush(60);
    const restarted = heapStats();
    await spanprof.stop();
    return { interval, allocated, stats, restarted };
  },
};

if (isMainThread) scenarios[scenario]().then((result) => console.log(JSON.stringify(result)));
