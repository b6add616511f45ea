'use strict';
// The Node.js counterpart of program.py: uses CPU time in threads, waits and labels its work, once before and once after the mark `later`.

const assert = require('node:assert');
const fs = require('node:fs');
const { Worker, isMainThread, workerData } = require('node:worker_threads');

function burn(milliseconds) {
  const end = performance.now() + milliseconds;
  let sum = 0;
  while (performance.now() < end) for (let number = 0; number < 10_000; number++) sum += number % 7;
  return sum;
}

const later = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function work() {
  const workers = [300, 300].map((milliseconds) => new Worker(__filename, { workerData: milliseconds }));
  const ended = workers.map((worker) => new Promise((resolve) => worker.on('exit', resolve)));
  burn(300);
  await later(100);
  await Promise.all(ended);
  burn(100);
}

async function main(spanprof) {
  const rounds = async () => {
    for (let round = 0; round < 3; round++) await (spanprof ? spanprof.tagWrapper({ route: '/cart' }, work) : work());
    if (spanprof) assert(await spanprof.flush(20), JSON.stringify(spanprof.stats()));
  };
  if (spanprof) assert(spanprof.start());
  await rounds();
  fs.existsSync('/system-calls/later');
  await rounds();
  if (spanprof) assert(await spanprof.stop(), JSON.stringify(spanprof.stats()));
}

if (isMainThread) main(process.argv[2] === 'profiled' ? require('spanprof') : null);
else burn(workerData);
