'use strict';
// Idles for rounds of two seconds under the profiler; prints the wakeups of the profiler's threads in each round, and the duration.
//
//     idle.js DIRECTORY [wall]

const path = require('node:path');
const timers = require('node:timers/promises');
const { execFile } = require('node:child_process');
const spanprof = require('spanprof');

const directory = process.argv[2];
const wall = process.argv[3] === 'wall';
const ROUNDS = wall ? 1 : 4;
spanprof.start({ serviceName: 'idles', wall, sampleRate: 100, uploadInterval: 1, destinations: [{ type: 'file', directory }] });
(async () => {
  // The samples of the start are sent first.
  await timers.setTimeout(500);
  await spanprof.flush();
  await timers.setTimeout(2000);
  const started = performance.now();
  // In another process: reading here would take samples, which wake the profiler.
  const words = [path.join(__dirname, 'wakeups.js'), process.pid, ROUNDS];
  const rounds = await new Promise((resolve, reject) => {
    execFile(process.execPath, words, (error, output) => (error ? reject(error) : resolve(JSON.parse(output))));
  });
  await spanprof.stop();
  console.log(JSON.stringify({ rounds, seconds: (performance.now() - started) / 1000 }));
})();
