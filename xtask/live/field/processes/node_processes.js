'use strict';
// Programs of several processes; one kind per run. Their output is independent of times and process ids.
//
//     node_processes.js cluster|fork COUNT

const cluster = require('node:cluster');
const { fork } = require('node:child_process');
const { fieldWork, start } = require('../profiled.js');

const [kind, count] = [process.argv[2], Number(process.argv[3])];

function total(number) {
  fieldWork(100);
  return Array.from({ length: 1000 }, (_, at) => at * number).reduce((sum, value) => sum + value, 0);
}

/** Prints the results in order, and the exit codes of the workers, after the last exit. */
function collect(workers) {
  const [results, codes] = [[], []];
  workers.forEach((worker, number) => {
    worker.on('message', (result) => { results[number] = result; });
    worker.on('exit', (code, signal) => {
      codes.push(signal ?? code);
      if (codes.length === count) console.log(JSON.stringify({ results, codes }));
    });
  });
}

const numbers = Array.from({ length: count }, (_, number) => number);
start();
if (process.env.FIELD_CHILD) {
  process.send(total(Number(process.env.FIELD_CHILD)), () => process.disconnect());
} else if (kind === 'cluster') {
  collect(numbers.map((number) => cluster.fork({ FIELD_CHILD: String(number) })));
} else {
  collect(numbers.map((number) => fork(__filename, [kind, String(count)], { env: { ...process.env, FIELD_CHILD: String(number) } })));
}
