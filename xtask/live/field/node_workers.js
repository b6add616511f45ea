'use strict';
// Worker threads that live at the same time: each sends a result, and ends when all have.
//
//     node_workers.js COUNT

const { isMainThread } = require('node:worker_threads');

/** A fixed amount of work: Node.js before 24 does not count the CPU time of one thread. */
function fieldWorkOf(rounds) {
  let sum = 0;
  for (let number = 0; number < rounds; number++) sum += number % 7;
  return sum;
}

if (isMainThread) {
  // So many runnable threads leave the thread that resolves samples little of the CPU: it has more time at the end than usual.
  require('./profiled.js').start({ stopTimeout: 30 });
  // Taken from the module after the start: a constructor that was taken before is Node's own.
  const { Worker } = require('node:worker_threads');
  const count = Number(process.argv[2]);
  const [sums, codes] = [[], []];
  const workers = Array.from({ length: count }, (_, number) => new Worker(__filename, { workerData: number }));
  workers.forEach((worker, number) => {
    worker.on('message', (sum) => {
      sums.push(sum - number);
      if (sums.length === count) for (const each of workers) each.postMessage('end');
    });
    worker.on('exit', (code) => {
      codes.push(code);
      if (codes.length === count) console.log(JSON.stringify({ sums: [...new Set(sums)], codes: [...new Set(codes)], count }));
    });
  });
} else {
  const { parentPort, workerData } = require('node:worker_threads');
  parentPort.once('message', () => parentPort.close());
  parentPort.postMessage(fieldWorkOf(10_000_000) + workerData);
}
