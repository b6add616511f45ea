'use strict';
// Waits for events, works, and blocks without working, each for a known time; sampled by the wall clock.

const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const directory = process.argv[2];

function work(milliseconds) {
  const end = performance.now() + milliseconds;
  let x = 1;
  while (performance.now() < end) x = (x * 31 + 7) % 65537;
  return x;
}
function block(milliseconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

const started = performance.now();
spanprof.start({ serviceName: 'waits', cpu: false, wall: true, wallRate: 200, destinations: [{ type: 'file', directory }] });
(async () => {
  await timers.setTimeout(400);
  spanprof.tagWrapper({ kind: 'work' }, work, 300);
  spanprof.tagWrapper({ kind: 'block' }, block, 500);
  await timers.setTimeout(300);
  const samples = spanprof.stats()['samples.wall'];
  const took = performance.now() - started;
  const delivered = await spanprof.stop();
  console.log(JSON.stringify({ delivered, samples, took }));
})();
