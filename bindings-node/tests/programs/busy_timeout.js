'use strict';
// Waits for a lock of SQLite for a second, in naps of up to 100 ms, under the profiler; prints the duration in milliseconds.
//
//     busy_timeout.js DIRECTORY [wall]

const path = require('node:path');
const { DatabaseSync } = require('node:sqlite');
const spanprof = require('spanprof');

const [, , directory, wall] = process.argv;
const [holder, waiter] = [0, 1].map(() => new DatabaseSync(path.join(directory, 'locked.db')));
holder.exec('CREATE TABLE t (x)');
holder.exec('BEGIN EXCLUSIVE');
waiter.exec('PRAGMA busy_timeout = 1000');
spanprof.start({ serviceName: 'waits', wall: wall === 'wall', eventLoopBlock: 20, destinations: [{ type: 'file', directory }] });
setTimeout(async () => {
  const began = performance.now();
  let refused = '';
  try {
    waiter.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    refused = error.message;
  }
  const milliseconds = performance.now() - began;
  // A database without a reference may be collected, with its lock.
  holder.close();
  await spanprof.stop();
  console.log(JSON.stringify({ refused, milliseconds }));
}, 50);
