'use strict';
// Known causes of crashes in Node.js profilers, concurrently, sampled at 2 kHz: garbage collection, compilation and
// deoptimization, deep stacks, generators, exceptions, regular expressions, WebAssembly, labels, workers terminated at any
// time, restarts of the profiler. The test is that the process survives.
//
//     stress.js SECONDS

const { Worker, isMainThread, parentPort } = require('node:worker_threads');
const timers = require('node:timers/promises');

/** A function of WebAssembly that counts down: a loop, no calls. */
const COUNT_DOWN = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 7, 8, 1, 4, 100, 111, 119, 110, 0, 0, 10, 27, 1, 25, 0,
  3, 64, 32, 0, 69, 4, 64, 65, 0, 15, 11, 32, 0, 65, 1, 107, 33, 0, 12, 0, 11, 65, 0, 11,
]);

let kept = [];
const WORK = {
  collect() {
    const garbage = [];
    for (let number = 0; number < 4000; number++) garbage.push({ number, text: `garbage ${number}`, list: [number, garbage] });
    kept = [kept.slice(0, 3), garbage.slice(0, 50)];
  },
  compile() {
    const name = `made${Math.floor(Math.random() * 1e9)}`;
    const made = new Function(`return function ${name}(n) { let t = 0; for (let i = 0; i < n; i++) t = (t * 31 + i) % 65537; return t; }`)();
    for (let time = 0; time < 5; time++) made(3000);
  },
  recurse() {
    const deeper = (depth) => (depth === 0 ? 0 : 1 + deeper(depth - 1));
    deeper(10 + Math.floor(Math.random() * 3000));
  },
  generate() {
    function* inner(count) { for (let number = 0; number < count; number++) yield number * number; }
    function* outer(count) { yield* inner(count); yield* inner(count); }
    return [...outer(300)].length;
  },
  throws() {
    const failing = (depth) => { if (depth === 0) throw new RangeError('deep'); try { failing(depth - 1); } finally { depth++; } };
    try { failing(40); } catch (error) { if (!error.stack) throw new Error('no stack'); }
  },
  match() {
    'the quick brown fox jumps over the lazy dog '.repeat(30).replace(/(\w+) (\w+)/g, (_, a, b) => `${b} ${a}`).split(/[aeiou]+/);
  },
  text() { JSON.parse(JSON.stringify(kept.length > 0 ? Array.from({ length: 200 }, (_, n) => ({ n, s: String(n) })) : {})); },
  wasm() {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(COUNT_DOWN));
    exports.down(20_000);
  },
};
const NAMES = Object.keys(WORK);

function churn(spanprof, turns) {
  for (let turn = 0; turn < turns; turn++) {
    const name = NAMES[Math.floor(Math.random() * NAMES.length)];
    spanprof.tagWrapper({ work: name, turn: String(turn % 50) }, WORK[name]);
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
  const { folder, into, fail, counters } = require('./suite.js');

  const seconds = Number(process.argv[2]);
  const until = Date.now() + seconds * 1000;
  const settings = into(folder(), { sampleRate: 2000, wall: true, wallRate: 200, eventLoopBlock: 20 });
  const counts = { workers: 0, cycles: 0, chains: 0, samples: 0, dropped: {} };

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
      await timers.setTimeout(500 + Math.random() * 1000);
      // The drain thread has not counted the latest samples.
      await spanprof.flush(30);
      const stats = spanprof.stats();
      counts.samples += stats['samples.cpu'];
      for (const [name, value] of Object.entries(counters(stats, 'dropped.'))) counts.dropped[name] = (counts.dropped[name] ?? 0) + value;
      await spanprof.stop();
      if (!spanprof.start(settings)) fail('it did not start again');
      counts.cycles++;
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
  spanprof.start(settings);
  Promise.all([workers(), workers(), cycles(), ...Array.from({ length: 8 }, (_, seed) => chains(seed))])
    .then(() => spanprof.stop())
    .then(() => {
      console.log(`${process.version}: ${JSON.stringify(counts)}`);
      // On a loaded machine CPU time is less than elapsed time.
      const cpuSeconds = process.cpuUsage().user / 1e6;
      if (counts.samples < 20 * cpuSeconds) fail(`only ${counts.samples} samples in ${cpuSeconds} s of CPU`);
      // V8 reports no code for a few of the dozens of frames per sample; more of them mean code removed too early.
      const unnamed = counts.dropped['dropped.code_ended'] ?? 0;
      if (unnamed > counts.samples / 10) fail(`${unnamed} frames of ended code in ${counts.samples} samples`);
      if (counts.workers < leastWorkers) fail(`only ${counts.workers} workers in ${seconds} s`);
    }, (error) => fail(`the profiled program failed: ${error.stack}`));
}
