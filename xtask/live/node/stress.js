'use strict';
// Known causes of crashes in Node.js profilers, concurrently, sampled at 2 kHz with every profile on: garbage collection,
// compilation and deoptimization, deep stacks, generators, exceptions, regular expressions, WebAssembly, buffers, labels,
// workers terminated at any time, changes of the configuration, restarts of the profiler. The test is that the process survives
// and computes what it computes without a profiler.
//
//     stress.js SECONDS [alone]

const { Worker, isMainThread, parentPort } = require('node:worker_threads');
const timers = require('node:timers/promises');

/** A function of WebAssembly that counts down: a loop, no calls. */
const COUNT_DOWN = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 7, 8, 1, 4, 100, 111, 119, 110, 0, 0, 10, 27, 1, 25, 0,
  3, 64, 32, 0, 69, 4, 64, 65, 0, 15, 11, 32, 0, 65, 1, 107, 33, 0, 12, 0, 11, 65, 0, 11,
]);

let kept = [];
/** Each function computes a number from its argument, and always the same one. */
const WORK = {
  collect(number) {
    const garbage = [];
    for (let index = 0; index < 4000 + number; index++) garbage.push({ index, text: `garbage ${index}`, list: [index, garbage] });
    kept = [kept.slice(0, 3), garbage.slice(0, 50)];
    return garbage.reduce((sum, one) => sum + one.index + one.text.length, 0);
  },
  buffers(number) {
    let sum = 0;
    for (const size of [1, 100, 4000, 9000, 70_000, 1 << 20]) {
      const buffer = Buffer.alloc(size + number, 1);
      const copy = new Uint8Array(new ArrayBuffer(size + number));
      copy.set(buffer);
      sum += buffer.length + copy[size - 1] + Buffer.from('text'.repeat(size % 100)).length + new Float64Array(size >> 3).length;
    }
    return sum;
  },
  compile(number) {
    const name = `made${Math.floor(Math.random() * 1e9)}`;
    const made = new Function(`return function ${name}(n) { let t = 0; for (let i = 0; i < n; i++) t = (t * 31 + i) % 65537; return t; }`)();
    let sum = 0;
    for (let time = 0; time < 5; time++) sum += made(3000 + number);
    return sum;
  },
  recurse(number) {
    const deeper = (depth) => (depth === 0 ? 0 : 1 + deeper(depth - 1));
    return deeper(10 + number * 900);
  },
  generate(number) {
    function* inner(count) { for (let value = 0; value < count; value++) yield value * value; }
    function* outer(count) { yield* inner(count); yield* inner(count); }
    return [...outer(300 + number)].reduce((sum, value) => sum + value, 0);
  },
  throws(number) {
    const failing = (depth) => { if (depth === 0) throw new RangeError('deep'); try { failing(depth - 1); } finally { depth++; } };
    try { failing(40 + number); } catch (error) { return error.stack.split('\n').length; }
  },
  match(number) {
    const text = 'the quick brown fox jumps over the lazy dog '.repeat(30 + number);
    return text.replace(/(\w+) (\w+)/g, (_, a, b) => `${b} ${a}`).split(/[aeiou]+/).length;
  },
  text(number) {
    return JSON.parse(JSON.stringify(Array.from({ length: 200 + number }, (_, n) => ({ n, s: String(n) })))).at(-1).n;
  },
  wasm(number) {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(COUNT_DOWN));
    new WebAssembly.Memory({ initial: 1 }).grow(1 + number);
    return exports.down(20_000) + number;
  },
};
const NAMES = Object.keys(WORK);
/** Arguments of the work; every result is known before the start. */
const NUMBERS = [0, 1, 2, 3];
const EXPECTED = Object.fromEntries(NAMES.map((name) => [name, NUMBERS.map(WORK[name])]));
let results = 0;

function churn(spanprof, turns) {
  for (let turn = 0; turn < turns; turn++) {
    const name = NAMES[Math.floor(Math.random() * NAMES.length)];
    const number = Math.floor(Math.random() * NUMBERS.length);
    const found = spanprof.tagWrapper({ work: name, turn: String(turn % 50) }, () => WORK[name](number));
    if (found !== EXPECTED[name][number]) throw new Error(`${name}(${number}) is ${found}, not ${EXPECTED[name][number]}`);
    results++;
  }
}

if (!isMainThread) {
  const spanprof = require('spanprof');
  parentPort.postMessage('at work');
  (async () => {
    for (;;) {
      churn(spanprof, 5);
      await timers.setImmediate();
    }
  })();
} else {
  const spanprof = require('spanprof');
  const { folder, into, fail } = require('./suite.js');

  const seconds = Number(process.argv[2]);
  const alone = process.argv[3] === 'alone';
  const until = Date.now() + seconds * 1000;
  const directory = folder();
  /** Every other run has the smallest live set, which is thinned all the time. */
  const settings = (run) => into(directory, {
    sampleRate: 2000, profiles: 'all', wall: true, wallRate: 200, eventLoopBlock: 20, heapInterval: 16_384, lockThreshold: 0,
    heapLiveSamples: run % 2 ? 1024 : 65_536,
  });
  /** Changes of the running profiler, in this order. */
  const changes = [
    { heapInterval: 4096 }, { heap: false }, { offCpu: false, wall: false }, { heap: true, heapInterval: 16_384 }, { gc: false },
    { threads: false, cpu: false }, { offCpu: true, wall: true }, { gc: true, threads: true, cpu: true }, { tags: { changed: 'yes' } },
    { heapInterval: 524_288 },
  ];
  const counts = { workers: 0, changes: 0, cycles: 0, chains: 0, longestFlushMs: 0, longestStopMs: 0 };
  const totals = {};

  /** Some counters start with the process, others with each run. */
  let last = {};
  function count(stats) {
    for (const [name, value] of Object.entries(stats)) {
      if (!/^(samples|dropped|heap\.(samples|thinned)|internal\.panics)/.test(name)) continue;
      const before = last[name] ?? 0;
      totals[name] = (totals[name] ?? 0) + (value >= before ? value - before : value);
      last[name] = value;
    }
  }

  // Two hundred in the default minute, independent of their duration.
  const leastWorkers = Math.floor((200 * seconds) / 60);
  async function workers() {
    while (Date.now() < until || counts.workers < leastWorkers) {
      const worker = new Worker(__filename);
      // Some are terminated before they run, some at their start, some later.
      if (Math.random() < 0.7) await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
      await timers.setTimeout(Math.random() * 40);
      await worker.terminate();
      counts.workers++;
    }
  }
  async function cycles() {
    while (Date.now() < until) {
      await timers.setTimeout(100 + Math.random() * 200);
      if (alone) continue;
      spanprof.update(changes[counts.changes++ % changes.length]);
      if (counts.changes % 4) continue;
      const began = Date.now();
      // The drain thread has not counted the latest samples.
      await spanprof.flush(30);
      counts.longestFlushMs = Math.max(counts.longestFlushMs, Date.now() - began);
      count(spanprof.stats());
      const flushed = Date.now();
      await spanprof.stop();
      counts.longestStopMs = Math.max(counts.longestStopMs, Date.now() - flushed);
      last = Object.fromEntries(Object.entries(last).filter(([name]) => !name.startsWith('samples.')));
      if (!spanprof.start(settings(++counts.cycles))) fail('it did not start again');
    }
  }
  async function chains(seed) {
    for (let step = 0; Date.now() < until; step++) {
      await spanprof.tagWrapper({ chain: String(seed), step: String(step % 20) }, async () => {
        churn(spanprof, 1);
        await timers.setImmediate();
        spanprof.setLabels({ chain: String(seed), set: 'yes' });
        await null;
        churn(spanprof, 1);
      });
      counts.chains++;
    }
  }
  if (!alone && !spanprof.start(settings(0))) fail('it did not start');
  Promise.all([workers(), workers(), cycles(), ...Array.from({ length: 8 }, (_, seed) => chains(seed))])
    .then(() => alone || spanprof.flush(30))
    .then(() => count(spanprof.stats()))
    .then(() => spanprof.stop())
    .then(() => {
      const cpuSeconds = (process.cpuUsage().user + process.cpuUsage().system) / 1e6;
      const nonZero = Object.fromEntries(Object.entries(totals).filter(([, value]) => value));
      console.log(`${process.version}: ${Math.round(cpuSeconds)} s of CPU, ${results} results, ${JSON.stringify({ ...counts, ...nonZero })}`);
      if (counts.workers < leastWorkers) fail(`only ${counts.workers} workers in ${seconds} s`);
      if (alone) return;
      // On a loaded machine CPU time is less than elapsed time.
      const samples = totals['samples.cpu'];
      if (samples < 20 * cpuSeconds) fail(`only ${samples} samples in ${cpuSeconds} s of CPU`);
      // V8 reports no code for a few of the dozens of frames per sample; more of them mean code removed too early.
      const unnamed = totals['dropped.code_ended'];
      if (unnamed > samples / 10) fail(`${unnamed} frames of ended code in ${samples} samples`);
      for (const name of ['samples.wall', 'samples.submitted', 'heap.samples']) {
        if (!totals[name]) fail(`no ${name} in ${seconds} s`);
      }
      if (totals['internal.panics']) fail('panics inside the profiler');
    })
    .catch((error) => fail(`the profiled program failed: ${error.stack}`));
}
