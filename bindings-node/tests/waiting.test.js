'use strict';
// The time off CPU and the live threads of a program with known waits.

const test = require('node:test');
const assert = require('node:assert/strict');
const pprof = require('./pprof_file.js');
const { runNode } = require('./run_node.js');

const PROGRAM = `
const spanprof = require('spanprof');
const pause = (source) => new Promise((resolve) => new Worker(source, { eval: true }).on('online', resolve));
const waits = 'function waiting() { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60000); } waiting();';
const started = process.hrtime.bigint();
spanprof.start({ serviceName: 'waiting', destinations: [{ type: 'file', directory: process.argv[1] }], cpu: false, offCpu: true, threads: true });
const { Worker } = require('node:worker_threads');
Promise.all([pause(waits), pause(waits)]).then(() => {
  const began = process.hrtime.bigint();
  setTimeout(async () => {
    const nanoseconds = Number(process.hrtime.bigint() - began);
    // The threads are counted by the last window, before the exit ends the workers.
    await spanprof.stop();
    console.log(nanoseconds, Number(process.hrtime.bigint() - started));
    process.exit();
  }, 3000);
});`;

test('waiting threads are off CPU for their wall time, and live threads are counted once', (t) => {
  const { stdout, folder } = runNode(t, ['-e', PROGRAM]);
  // The waits of the workers, and the whole run: the main thread is idle while they start and while the run ends too.
  const [nanoseconds, run] = stdout.trim().split(' ').map(Number);
  const names = (sample) => sample.stack.map((frame) => frame.name);
  const offCpu = pprof.readAll(folder, 'off_cpu');
  const sum = (some) => offCpu.filter(some).reduce((total, sample) => total + sample.values.off_cpu, 0);
  const ofWorkers = sum((sample) => names(sample).includes('waiting'));
  assert.ok(Math.abs(ofWorkers / (2 * nanoseconds) - 1) < 0.15, `${ofWorkers} of ${2 * nanoseconds}`);
  const inLock = sum((sample) => names(sample).includes('waiting') && names(sample)[0] === '[lock]');
  assert.ok(inLock > 0.9 * ofWorkers, `${inLock} of ${ofWorkers}`);
  const idle = sum((sample) => names(sample).includes('(idle)'));
  assert.ok(idle > 0.8 * nanoseconds && idle < 1.05 * run, `${idle} of ${nanoseconds}, in a run of ${run}`);
  assert.equal(pprof.readAll(folder, 'wall').length, 0);
  const threads = pprof.readAll(folder, 'threads');
  const count = (some) => threads.filter(some).reduce((total, sample) => total + sample.values.threads, 0);
  assert.equal(count((sample) => names(sample).includes('waiting')), 2);
  assert.equal(count((sample) => !names(sample).includes('waiting')), 1);
});
