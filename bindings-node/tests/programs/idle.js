'use strict';
// Idles for rounds of two seconds under the profiler; prints the wakeups of the profiler's threads in each round, and the duration.
//
//     idle.js DIRECTORY [wall]

const fs = require('node:fs');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const directory = process.argv[2];
// A buffer for each read would be a sample of the heap, which opens a window.
const buffer = Buffer.alloc(4096);
/** A file of a thread; empty when the thread has ended. */
function read(path) {
  try {
    const file = fs.openSync(path);
    try {
      return buffer.latin1Slice(0, fs.readSync(file, buffer, 0, buffer.length, 0));
    } finally {
      fs.closeSync(file);
    }
  } catch {
    return '';
  }
}

/** The profiler's threads with their voluntary context switches. */
function profilerThreads() {
  const tasks = '/proc/self/task';
  const threads = fs.readdirSync(tasks).map((id) => ({ id, name: read(`${tasks}/${id}/comm`).trim() }));
  return threads.filter(({ name }) => name.startsWith('spanprof')).map(({ id, name }) => {
    const sleeps = /^voluntary_ctxt_switches:\s+(\d+)/m.exec(read(`${tasks}/${id}/status`));
    return { id, name, sleeps: Number(sleeps?.[1] ?? 0) };
  });
}

const wall = process.argv[3] === 'wall';
const ROUNDS = wall ? 1 : 4;
spanprof.start({ serviceName: 'idles', wall, sampleRate: 100, uploadInterval: 1, destinations: [{ type: 'file', directory }] });
(async () => {
  // The samples of the start are sent first.
  await timers.setTimeout(500);
  await spanprof.flush();
  await timers.setTimeout(2000);
  const started = performance.now();
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) {
    const sleepsBefore = new Map(profilerThreads().map(({ id, sleeps }) => [id, sleeps]));
    await timers.setTimeout(2000);
    rounds.push(profilerThreads().map(({ id, name, sleeps }) => [name, sleeps - (sleepsBefore.get(id) ?? 0)]));
  }
  await spanprof.stop();
  console.log(JSON.stringify({ rounds, seconds: (performance.now() - started) / 1000 }));
})();
