'use strict';
// Fills a window with labelled samples in many stacks, ends it, and prints the pause of the thread.
//
//     rotation_run.js PROFILER CPU_SECONDS ADDRESS

const profilers = require('./profilers.js');
const { fill } = require('./many_stacks.js');
const { cpuNs } = require('./work.js');

const RATE_HZ = 1000;

/** Runs with the profiler's own labels, as its users do. */
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

/** The longest time between two turns of a busy loop, until `done` returns true. */
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
  fill(labelled, () => cpuNs() >= end);
  const said = { gapBeforeMs: largestGapMs(forMs(200)) };
  const began = performance.now();
  if (name === 'spanprof') {
    const spanprof = require('spanprof');
    const { 'samples.cpu': samples } = spanprof.stats();
    const before = spanprof.stats()['windows.closed'];
    const asked = performance.now();
    const sent = spanprof.flush(10);
    said.callMs = performance.now() - asked;
    // The window is closed, encoded and sent while JavaScript runs on. The response needs the event loop, so no wait here.
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
