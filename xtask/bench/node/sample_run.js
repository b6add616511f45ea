'use strict';
// Work under spanprof, every window delivered. Prints the profiler's own clocks as JSON, for ../every-language: the cost of the start,
// when all code is reported and the program's symbols are read, and the cost of the samples after it.
//
//     sample_run.js "DEPTH frames, spanprof RATE Hz" ADDRESS SECONDS

const spanprof = require('spanprof');
const { cpuNs, mix } = require('./work.js');

/** Samples between two readings of the handler's time: few, so most readings contain no preemption. */
const SAMPLES_A_SLICE = 20;
const SLICES = 40;

async function main() {
  const [, depth, rate] = /^(\d+) frames, spanprof (\d+) Hz$/.exec(process.argv[2]).map(Number);
  const [endpoint, seconds] = process.argv.slice(3);
  mix(depth, 0.2);
  spanprof.start({ serviceName: 'bench', sampleRate: rate, endpoint });
  mix(depth, 1);
  await spanprof.flush(10);
  const begun = spanprof.stats();
  mix(depth, Number(seconds));
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
  const micros = (name) => (ended[name] - begun[name]) / (ended['samples.cpu'] - begun['samples.cpu']) / 1000;
  console.log(JSON.stringify({
    'handler, µs per sample': slicesNs.sort((a, b) => a - b)[SLICES / 2] / 1000,
    'own threads, µs per sample': micros('cost.own_cpu_ns'),
    'own threads until the first window, ms': begun['cost.own_cpu_ns'] / 1e6,
  }));
}

main();
