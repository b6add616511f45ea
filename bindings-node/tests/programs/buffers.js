'use strict';
// Allocates known numbers of bytes outside V8's heap: array buffers that are kept, and others that are dropped. Prints the
// bytes. The second argument selects the scenario.

const fs = require('node:fs');
const timers = require('node:timers/promises');
const v8 = require('node:v8');
const vm = require('node:vm');
const workerThreads = require('node:worker_threads');
const spanprof = require('spanprof');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');

/** Of each buffer; above the size of Node's pool of small Buffers in every version. */
const BYTES = 80_000;
const interval = 65_536;
const [, , directory, scenario] = process.argv;

const kept = (globalThis.kept = []);
function keepBuffers(count) {
  for (let i = 0; i < count; i++) kept.push(Buffer.alloc(BYTES));
  return count * BYTES;
}
function keepShared(count) {
  for (let i = 0; i < count; i++) kept.push(new SharedArrayBuffer(BYTES));
  return count * BYTES;
}
/** Small Buffers of Node's pool; the pool's memory is allocated here. */
function keepSmall(bytes) {
  for (let sum = 0; sum < bytes; sum += 1000) kept.push(Buffer.allocUnsafe(1000));
  return bytes;
}
function dropTyped(count) {
  for (let i = 0; i < count; i++) new Uint8Array(BYTES);
  return count * BYTES;
}
function transferable(count) {
  return Array.from({ length: count }, () => new ArrayBuffer(BYTES));
}

/** Collects until at most `bytes` of array buffers are left: V8 frees them on other threads. */
async function collectDownTo(bytes) {
  for (const end = Date.now() + 60_000; process.memoryUsage().arrayBuffers > bytes && Date.now() < end;) {
    gc();
    await timers.setTimeout(20);
  }
}

const start = (folder = directory) =>
  spanprof.start({ serviceName: 'buffers', heapInterval: interval, cpuBudget: 0, destinations: [{ type: 'file', directory: folder }] });
const heapStats = () => Object.fromEntries(Object.entries(spanprof.stats()).filter(([name]) => /heap|array_buffer/.test(name)));

/** Begins a worker and waits until it holds its buffers. */
function begin(count, transfer = []) {
  const worker = new workerThreads.Worker(__filename, {
    argv: [directory, scenario], workerData: { count, transfer }, transferList: transfer,
  });
  return new Promise((resolve, reject) => worker.once('message', () => resolve(worker)).once('error', reject));
}

const scenarios = {
  async windows() {
    start();
    const before = process.memoryUsage().arrayBuffers;
    const allocated = { keepBuffers: 0, keepShared: 0, keepSmall: 0, dropTyped: 0 };
    for (let window = 0; window < 3; window++) {
      await spanprof.tagWrapper({ route: 'leak' }, () => { allocated.keepBuffers += keepBuffers(250); });
      allocated.keepShared += keepShared(100);
      allocated.keepSmall += keepSmall(8_000_000);
      allocated.dropTyped += dropTyped(250);
      await spanprof.flush(60);
    }
    const remaining = allocated.keepBuffers + allocated.keepShared + allocated.keepSmall;
    await collectDownTo(before + remaining + 4_000_000);
    const left = process.memoryUsage().arrayBuffers - before;
    const stats = heapStats();
    return { interval, allocated, left, stats, delivered: await spanprof.stop() };
  },

  /** A worker has its own buffers and those of the main thread; other workers end while they allocate. */
  async worker() {
    start();
    const first = await begin(300, transferable(300));
    await spanprof.flush(60);
    const during = heapStats();
    await first.terminate();
    for (let round = 0; round < 6; round++) {
      const workers = await Promise.all([begin(20, transferable(20)), begin(20)]);
      // Allocated where no JavaScript runs, or by Node.js itself.
      await Promise.all(Array.from({ length: 8 }, () => fs.promises.readFile(__filename)));
      await timers.setTimeout(round);
      await Promise.all(workers.map((worker) => worker.terminate()));
    }
    await collectDownTo(8_000_000);
    const after = heapStats();
    await spanprof.stop();
    return { interval, allocated: { keepBuffers: 300 * BYTES, transferable: 300 * BYTES }, during, after };
  },

  /** The second run starts without the buffers of the first, which are freed during the second. */
  async restart() {
    start();
    keepBuffers(200);
    await spanprof.stop();
    keepBuffers(200);
    start(`${directory}/second`);
    kept.length = 0;
    await collectDownTo(8_000_000);
    const allocated = { keepBuffers: keepBuffers(300), dropTyped: dropTyped(100) };
    await spanprof.stop();
    return { interval, allocated };
  },

  /** Contents of files are read into buffers. */
  async files() {
    const file = `${directory}.bin`;
    fs.writeFileSync(file, Buffer.alloc(4_000_000, 1));
    start();
    const texts = [];
    for (let i = 0; i < 10; i++) texts.push(await fs.promises.readFile(file), fs.readFileSync(file));
    for await (const part of fs.createReadStream(file)) texts.push(part);
    fs.unlinkSync(file);
    const sum = texts.reduce((total, text) => total + text.length, 0);
    const stats = heapStats();
    await spanprof.stop();
    return { interval, sum, allocated: { files: 80_000_000 }, stats };
  },
};

if (workerThreads.isMainThread) {
  scenarios[scenario]().then((result) => console.log(JSON.stringify(result)));
} else {
  kept.push(workerThreads.workerData.transfer);
  keepBuffers(workerThreads.workerData.count);
  workerThreads.parentPort.postMessage('kept');
  // Until the parent terminates it.
  for (;;) dropTyped(1);
}
