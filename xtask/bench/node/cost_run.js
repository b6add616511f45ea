'use strict';
// One process of the cost benchmark: repeats the same work, alternately with and without one profiler. Prints the ratio of each
// pair and the additional CPU time per sample period as JSON. The measured time includes encoding and delivery, as at the end of
// a window. It excludes the start, and the stop where that is a separate step.
//
//     cost_run.js PROFILER RATE DEPTH PAIRS MILLISECONDS ADDRESS

const { setTimeout: pause } = require('node:timers/promises');
const profilers = require('./profilers.js');
const { cpuNs, fixed } = require('./work.js');

async function main() {
  const [name, ...words] = process.argv.slice(2);
  const [rate, depth, pairs, milliseconds] = words.map(Number);
  const address = words[4];
  const profiler = profilers.load(name);
  // Warms up, and counts the rounds of the given time.
  fixed(depth, 30);
  const began = cpuNs();
  fixed(depth, 50);
  const rounds = Math.max(1, Math.round((milliseconds * 1e6) / ((cpuNs() - began) / 50)));
  const one = async (on) => {
    if (on) profiler.start(rate, address);
    // Work started by the start is not measured.
    fixed(depth, Math.ceil(rounds / 10));
    const before = cpuNs();
    fixed(depth, rounds);
    const stopped = on && (await profiler.endWindow());
    const took = cpuNs() - before;
    if (on && !stopped) await profiler.stop();
    // Work started by the stop is not measured.
    await pause(20);
    return took;
  };
  // The first start compiles, resolves and connects.
  await one(true);
  const ratios = [];
  const extraNs = [];
  for (let pair = 0; pair < pairs; pair++) {
    const order = pair % 2 === 0 ? [false, true] : [true, false];
    const took = {};
    for (const on of order) took[on] = await one(on);
    ratios.push(took.true / took.false);
    extraNs.push((took.true - took.false) / ((took.false / 1e9) * rate));
  }
  console.log(JSON.stringify({ ratios, extraNs }));
  process.exit(0);
}

main();
