'use strict';
// Prints the wakeups of the threads of the profiler in another process, in rounds of two seconds, as JSON.
//
//     wakeups.js PID ROUNDS

const fs = require('node:fs');
const timers = require('node:timers/promises');

const [pid, rounds] = process.argv.slice(2).map(Number);
const tasks = `/proc/${pid}/task`;

/** A file of a thread; empty when the thread has ended. */
function read(path) {
  try {
    return fs.readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** The profiler's threads with their voluntary context switches. */
function profilerThreads() {
  const threads = fs.readdirSync(tasks).map((id) => ({ id, name: read(`${tasks}/${id}/comm`).trim() }));
  return threads.filter(({ name }) => name.startsWith('spanprof')).map(({ id, name }) => {
    const sleeps = /^voluntary_ctxt_switches:\s+(\d+)/m.exec(read(`${tasks}/${id}/status`));
    return { id, name, sleeps: Number(sleeps?.[1] ?? 0) };
  });
}

(async () => {
  const woken = [];
  for (let round = 0; round < rounds; round++) {
    const sleepsBefore = new Map(profilerThreads().map(({ id, sleeps }) => [id, sleeps]));
    await timers.setTimeout(2000);
    woken.push(profilerThreads().map(({ id, name, sleeps }) => [name, sleeps - (sleepsBefore.get(id) ?? 0)]));
  }
  console.log(JSON.stringify(woken));
})();
