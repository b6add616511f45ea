'use strict';
// Concurrent worker threads: each sends a result, and ends after all have sent theirs.
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
  // Many runnable threads leave the drain thread little CPU time: the stop timeout is longer than the default.
  require('../profiled.js').start({ stopTimeout: 30 });
  // Read from the module after the start: earlier it is Node's own constructor.
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
