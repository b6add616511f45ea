'use strict';
// Blocks the event loop for known times, in functions of known names, labels and traces; one block waits instead of working.
// Prints how long each really took, and until when the turn of the loop had ended, in nanoseconds.

const fs = require('node:fs');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const directory = process.argv[2];

/** CPU time of this thread alone; `process.cpuUsage` has that of the profiler's threads too. */
const threadCpuNs = () => Number(fs.readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ', 1)[0]);

function burn(milliseconds) {
  const end = threadCpuNs() + milliseconds * 1e6;
  let x = 1;
  while (threadCpuNs() < end) for (let i = 0; i < 100_000; i++) x = (x * 31 + i) % 65537;
  return x;
}
function blockLong() { return burn(150); }
function blockShort() { return burn(90); }
function blockNot() { return burn(4); }
function wait() { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 120); }

spanprof.start({ serviceName: 'blocks', eventLoopBlock: 60, destinations: [{ type: 'file', directory }] });
const took = {};
(async () => {
  await timers.setTimeout(50);
  await timers.setImmediate();
  for (const [number, block] of [blockLong, blockShort, blockNot, wait].entries()) {
    await timers.setTimeout(20);
    const trace = (number + 1).toString(16).padStart(32, 'c');
    const begin = process.hrtime.bigint();
    spanprof.tagWrapper({ kind: block.name, trace_id: trace, span_id: 'd'.repeat(16) }, block);
    const after = process.hrtime.bigint();
    // The turn ends before immediates run.
    await timers.setImmediate();
    took[block.name] = [after, process.hrtime.bigint()].map((end) => Number(end - begin));
  }
  await timers.setTimeout(20);
  const stats = spanprof.stats();
  await spanprof.stop();
  const loop = Object.fromEntries(Object.entries(stats).filter(([name]) => name.includes('.loop_')));
  console.log(JSON.stringify({ took, loop }));
})();
