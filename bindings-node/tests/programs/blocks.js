'use strict';
// Blocks the event loop for known times, in functions with known names, labels and traces; some blocks wait instead of working.
// With `wall`, also sampled by the wall clock. Waits are long enough to be observed on a busy machine. Prints the duration of each
// block, the end of its loop turn, and the longest possible turn, in nanoseconds.

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const [, , directory, clock] = process.argv;

/** CPU time of this thread, where the kernel reports it: the CPU time of other threads is not part of a block. */
function ownCpuMs() {
  try {
    return Number(fs.readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ', 1)[0]) / 1e6;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e3;
  }
}
function burn(milliseconds) {
  const before = ownCpuMs();
  let x = 1;
  do {
    for (let i = 0; i < 50_000; i++) x = (x * 31 + i) % 65537;
  } while (ownCpuMs() - before < milliseconds);
  return x;
}
function blockLong() { return burn(150); }
function blockShort() { return burn(90); }
function blockNot() { return burn(4); }
function wait() { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400); }
function runProgram() { execFileSync('sleep', ['0.5']); }

spanprof.start({ serviceName: 'blocks', eventLoopBlock: 60, wall: clock === 'wall', wallRate: 100, destinations: [{ type: 'file', directory }] });
const took = {};
(async () => {
  await timers.setTimeout(50);
  await timers.setImmediate();
  for (const [number, block] of [blockLong, blockShort, blockNot, wait, runProgram].entries()) {
    const before = process.hrtime.bigint();
    await timers.setTimeout(20);
    const trace = (number + 1).toString(16).padStart(32, 'c');
    const begin = process.hrtime.bigint();
    spanprof.tagWrapper({ kind: block.name, trace_id: trace, span_id: 'd'.repeat(16) }, block);
    const after = process.hrtime.bigint();
    // The turn ends before immediates run.
    await timers.setImmediate();
    const end = process.hrtime.bigint();
    // The turn begins when its timer is due; a busy machine runs the program later.
    took[block.name] = [after - begin, end - begin, end - before - 19_000_000n].map(Number);
  }
  await timers.setTimeout(20);
  const stats = spanprof.stats();
  await spanprof.stop();
  const loop = Object.fromEntries(Object.entries(stats).filter(([name]) => name.includes('.loop_')));
  console.log(JSON.stringify({ took, loop }));
})();
