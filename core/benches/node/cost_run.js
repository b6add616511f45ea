'use strict';
// One process of the cost benchmark: the same work again and again, by turns with and without one profiler; prints the ratios
// of each pair, and the CPU time per sample period that is on top, as JSON. What was sampled is encoded and delivered inside
// the measured time, as at the end of a window; starting, and stopping where that is another thing, are not.
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
  // Warm, and as many rounds as last so long.
  fixed(depth, 30);
  const began = cpuNs();
  fixed(depth, 50);
  const rounds = Math.max(1, Math.round((milliseconds * 1e6) / ((cpuNs() - began) / 50)));
  const one = async (on) => {
    if (on) profiler.start(rate, address);
    // What starting sets off comes before.
    fixed(depth, Math.ceil(rounds / 10));
    const before = cpuNs();
    fixed(depth, rounds);
    const stopped = on && (await profiler.endWindow());
    const took = cpuNs() - before;
    if (on && !stopped) await profiler.stop();
    // What stopping sets off comes afterwards.
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
