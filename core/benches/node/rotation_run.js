'use strict';
// Fills a window with labelled samples in very many stacks, ends it, and prints how long the thread stood still.
//
//     rotation_run.js PROFILER CPU_SECONDS ADDRESS

const profilers = require('./profilers.js');
const { cpuNs } = require('./work.js');

const RATE_HZ = 1000;
/** Functions that call each other by the digits of a number: a stack of its own for every number. */
const STEPS = Array.from({ length: 10 }, (_, digit) =>
  new Function('steps', 'burn', `return function step${digit}(rest, left) { return left === 0 ? burn(rest) : steps[rest % 10](Math.floor(rest / 10), left - 1) + ${digit}; }`));
const burners = [];
function burn(turns) {
  let x = turns;
  for (let i = 0; i < 20_000; i++) x = (x * 31 + i) % 65537;
  return x;
}
for (const step of STEPS) burners.push(step(burners, burn));

/** Runs in labels of the profiler's own, as its users would. */
const LABELLED = {
  spanprof: () => require('spanprof').tagWrapper,
  datadog() {
    const { time } = require('@datadog/pprof');
    return (labels, body) => {
      time.setContext(labels);
      body();
    };
  },
  pyroscope() {
    const { default: pyroscope } = require('@pyroscope/nodejs');
    return pyroscope.wrapWithLabels;
  },
  inspector: () => (_labels, body) => body(),
};

/** The largest time between two turns of a busy loop, until `done` says so. */
function largestGapMs(done) {
  let largest = 0;
  let last = performance.now();
  while (!done()) {
    const now = performance.now();
    largest = Math.max(largest, now - last);
    last = now;
  }
  return largest;
}

const forMs = (milliseconds) => {
  const end = performance.now() + milliseconds;
  return () => performance.now() >= end;
};

async function main() {
  const [name, cpuSeconds, address] = process.argv.slice(2);
  const profiler = profilers.load(name);
  profiler.start(RATE_HZ, address);
  const labelled = LABELLED[name]();
  const end = cpuNs() + Number(cpuSeconds) * 1e9;
  for (let number = 0; cpuNs() < end; number++) labelled({ request: String(number % 6000) }, () => burners[number % 10](number, 5));
  const said = { gapBeforeMs: largestGapMs(forMs(200)) };
  const began = performance.now();
  if (name === 'spanprof') {
    const spanprof = require('spanprof');
    const { 'samples.cpu': samples } = spanprof.stats();
    const before = spanprof.stats()['windows.closed'];
    const asked = performance.now();
    const sent = spanprof.flush(10);
    said.callMs = performance.now() - asked;
    // The window is closed, encoded and sent while JavaScript runs on; the answer needs the event loop, so it is not waited for.
    said.gapMs = largestGapMs(forMs(400));
    await sent;
    const stats = spanprof.stats();
    if (stats['windows.closed'] <= before) throw new Error('no window was closed');
    Object.assign(said, { samples, stacks: stats['stacks.unique'] });
  } else if (name === 'datadog') {
    const { time, encodeSync } = require('@datadog/pprof');
    const profile = time.stop(true, ({ context }) => ({ ...context?.context }));
    said.callMs = performance.now() - began;
    encodeSync(profile);
    said.encodeMs = performance.now() - began - said.callMs;
    const samples = profile.sample;
    Object.assign(said, { samples: samples.reduce((sum, one) => sum + Number(one.value[0]), 0), stacks: new Set(samples.map((one) => one.locationId.join())).size });
  } else {
    const made = profiler.stop();
    said.callMs = performance.now() - began;
    said.encodeMs = 0;
    Object.assign(said, { samples: 0, stacks: 0 });
    if (name === 'inspector') {
      JSON.stringify(made);
      said.encodeMs = performance.now() - began - said.callMs;
      Object.assign(said, { samples: made.samples.length, stacks: new Set(made.samples).size });
    } else {
      // It encodes when it sends, on this thread.
      await made;
      said.encodeMs = performance.now() - began - said.callMs;
    }
  }
  console.log(JSON.stringify(said));
  process.exit(0);
}

main();
