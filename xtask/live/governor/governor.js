// 400 blocked threads of libuv's pool: idle, then a burst of one function, then idle. Prints the profiler's CPU time in each 10 s
// as `window ELAPSED_NS COST_NS PROCESS_NS SAMPLE_RATE LIMITED_BY`. Arguments: the directory of the profiles, idle windows, burst
// windows. The pool's size is set by UV_THREADPOOL_SIZE.
'use strict';

const fs = require('node:fs');
const spanprof = require('spanprof');

const [fileDirectory, idle, burst] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let total = 0;

function hotFunction(until) {
  while (Date.now() < until) {
    for (let number = 0; number < 100_000; number += 1) {
      total = (Math.imul(total, 31) ^ number) | 0;
    }
  }
}

const cost = (stats) => ['cost.own_cpu_ns', 'clock.handler_ns', 'clock.delivery_ns'].reduce((sum, name) => sum + stats[name], 0);

async function window(work) {
  const [began, before] = [process.hrtime.bigint(), spanprof.stats()];
  await work();
  const stats = spanprof.stats();
  const used = stats['cost.process_cpu_ns'] - before['cost.process_cpu_ns'];
  const words = [process.hrtime.bigint() - began, cost(stats) - cost(before), used, stats['governor.sample_rate'], stats['governor.limited_by']];
  console.log(`window ${words.join(' ')}`);
}

async function main() {
  // The pool starts all of its threads at the first use.
  fs.stat('.', () => {});
  spanprof.start({ fileDirectory });
  await sleep(21_000);
  for (let index = 0; index < Number(idle); index += 1) await window(() => sleep(10_000));
  // The event loop ends each turn, as in a service.
  const busy = async () => {
    const until = Date.now() + 10_000;
    while (Date.now() < until) {
      hotFunction(Math.min(until, Date.now() + 100));
      await sleep(0);
    }
  };
  for (let index = 0; index < Number(burst); index += 1) await window(busy);
  await window(() => sleep(10_000));
  await spanprof.stop();
}

main();
