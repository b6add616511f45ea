'use strict';
// Loads and starts spanprof, or nothing, in a fresh process, then worker threads one after the other, each of which ends at its first
// message. Prints the time and the CPU time of the process as JSON, for ../every-language.
//
//     start_run.js none|spanprof ADDRESS SECONDS

const { setTimeout: pause } = require('node:timers/promises');

const [name, endpoint, seconds] = process.argv.slice(2);
const IN_WORKER = 'require("node:worker_threads").parentPort.postMessage(1)';

function cpuMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Milliseconds until the first message of a worker that then ends. */
function firstMessage() {
  // spanprof replaces its constructor.
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
  const figures = {};
  if (name === 'spanprof') {
    const [began, cpuBefore] = [performance.now(), cpuMs()];
    const spanprof = require('spanprof');
    const [loaded, cpuLoaded] = [performance.now(), cpuMs()];
    spanprof.start({ serviceName: 'bench', endpoint });
    Object.assign(figures, {
      'load, ms': loaded - began,
      'start, ms': performance.now() - loaded,
      'CPU of the load, ms': cpuLoaded - cpuBefore,
      'CPU of the start, ms': cpuMs() - cpuLoaded,
    });
  }
  await firstMessage();
  // Work started by the start is not measured.
  await pause(300);
  const workers = 2 * Number(seconds);
  const [cpuBefore, took] = [cpuMs(), []];
  for (let worker = 0; worker < workers; worker++) took.push(await firstMessage());
  figures['a worker, ms'] = took.sort((a, b) => a - b)[workers >> 1];
  figures['CPU of a worker, ms'] = (cpuMs() - cpuBefore) / workers;
  console.log(JSON.stringify(figures));
  process.exit(0);
}

main();
