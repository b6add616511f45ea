'use strict';
// Does nothing for two seconds under the profiler; prints how often threads of the profiler woke up meanwhile, and what
// CPU time they took, in scheduler ticks.

const fs = require('node:fs');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const directory = process.argv[2];
/** Threads of the profiler: how often each went to sleep of its own accord. */
function ours() {
  const tasks = '/proc/self/task';
  const threads = fs.readdirSync(tasks).map((id) => ({ id, name: fs.readFileSync(`${tasks}/${id}/comm`, 'utf8').trim() }));
  return threads.filter(({ name }) => name.startsWith('spanprof')).map(({ id, name }) => {
    const status = fs.readFileSync(`${tasks}/${id}/status`, 'utf8');
    const sleeps = /^voluntary_ctxt_switches:\s+(\d+)/m.exec(status);
    return { name, sleeps: Number(sleeps?.[1]) };
  });
}

spanprof.start({ serviceName: 'idles', sampleRate: 100, uploadInterval: 1, destinations: [{ type: 'file', directory }] });
(async () => {
  // What starting was is sent first.
  await timers.setTimeout(500);
  await spanprof.flush();
  await timers.setTimeout(2000);
  const before = ours();
  await timers.setTimeout(2000);
  const after = ours();
  const woken = after.map(({ name, sleeps }, at) => [name, sleeps - before[at].sleeps]);
  await spanprof.stop();
  console.log(JSON.stringify({ woken }));
})();
