'use strict';
// Work under spanprof for so long, every window delivered. Prints the profiler's own clocks as JSON: the cost of the start, when
// all code is reported and the program's symbols are read, and the cost of the samples after it.
//
//     own_run.js RATE DEPTH SECONDS ADDRESS

const spanprof = require('spanprof');
const { cpuNs, mix } = require('./work.js');

/** Samples between two readings of the handler's time: few, so most readings contain no preemption. */
const SAMPLES_A_SLICE = 20;
const SLICES = 40;

async function main() {
  const [rate, depth, seconds] = process.argv.slice(2).map(Number);
  mix(depth, 0.2);
  spanprof.start({ serviceName: 'bench', sampleRate: rate, endpoint: process.argv[5] });
  mix(depth, 1);
  await spanprof.flush(10);
  const begun = spanprof.stats();
  mix(depth, seconds);
  await spanprof.flush(10);
  const ended = spanprof.stats();
  const slicesNs = [];
  for (let slice = 0; slice < SLICES; slice++) {
    const [handlerBefore, cpuBefore] = [spanprof.stats()['clock.handler_ns'], cpuNs()];
    mix(depth, SAMPLES_A_SLICE / rate);
    const periods = ((cpuNs() - cpuBefore) / 1e9) * rate;
    slicesNs.push((spanprof.stats()['clock.handler_ns'] - handlerBefore) / periods);
  }
  await spanprof.stop();
  const between = (name) => ended[name] - begun[name];
  console.log(JSON.stringify({
    beginningNs: begun['cost.own_cpu_ns'],
    samples: between('samples.cpu'),
    handlerNs: between('clock.handler_ns'),
    handlerSlicesNs: slicesNs,
    threadsNs: between('cost.own_cpu_ns'),
    clock: ended['clock.name'],
  }));
}

main();
