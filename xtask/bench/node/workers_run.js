'use strict';
// Starts worker threads under one profiler, so many at a time, and ends each at its first message. Prints the milliseconds until
// the first message of each, and the CPU time of the process per worker.
//
//     workers_run.js PROFILER WORKERS AT_A_TIME ADDRESS

const { setTimeout: pause } = require('node:timers/promises');
const profilers = require('./profilers.js');

const [name, ...words] = process.argv.slice(2);
const [workers, atATime] = words.map(Number);
const profiler = profilers.load(name);

const IN_WORKER = 'require("node:worker_threads").parentPort.postMessage(1)';

function cpuMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Milliseconds until the first message of a worker that then ends. */
function firstMessage() {
  // Profilers that follow workers replace its constructor.
  const { Worker } = require('node:worker_threads');
  return new Promise((resolve, reject) => {
    const began = performance.now();
    let took;
    const worker = new Worker(IN_WORKER, { eval: true });
    worker.once('message', () => { took = performance.now() - began; });
    worker.once('error', reject);
    worker.once('exit', () => resolve(took));
  });
}

async function main() {
  profiler.start(100, words[2]);
  await firstMessage();
  // Work started by the start is not measured.
  await pause(300);
  const [began, cpuBefore] = [performance.now(), cpuMs()];
  const took = [];
  let left = workers;
  const lane = async () => {
    while (left-- > 0) took.push(await firstMessage());
  };
  await Promise.all(Array.from({ length: atATime }, lane));
  const said = { took, cpuMs: (cpuMs() - cpuBefore) / workers, seconds: (performance.now() - began) / 1000 };
  await profiler.stop();
  console.log(JSON.stringify(said));
  process.exit(0);
}

main();
