'use strict';
// Worker threads that use CPU time, each under a label of its own. The arguments are the directory of the profiles
// (`check_threads.py`) and the number of threads.

const { once } = require('node:events');
const { Worker, isMainThread, workerData } = require('node:worker_threads');
const spanprof = require('spanprof');

const used = () => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

function work(milliseconds) {
  const began = used();
  let sum = 0;
  while (used() - began < milliseconds) for (let n = 0; n < 10_000; n++) sum = (sum + n * 7) % 1021;
  return sum;
}

async function main(directory, count) {
  spanprof.start({ serviceName: 'threads', destinations: [{ type: 'file', directory }] });
  // Until the tables of the libraries are built, which takes the dev profile longer than the threads live.
  await spanprof.flush();
  const ends = [];
  for (let number = 0; number < Number(count); number++) {
    const worker = new Worker(__filename, { workerData: String(number) });
    ends.push(once(worker, 'exit'));
    await once(worker, 'online');
  }
  await Promise.all(ends);
  await spanprof.stop();
}

if (isMainThread) main(...process.argv.slice(2));
else spanprof.tagWrapper({ thread: workerData }, () => work(200));
