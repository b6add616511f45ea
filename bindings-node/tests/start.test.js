'use strict';
// The memory that a start touches in its process, and a start without memory.

const test = require('node:test');
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const { runNode } = require('./run_node.js');

/** Runs a program in its own process; returns the JSON of its last line. */
function run(t, source) {
  return JSON.parse(runNode(t, ['-e', source]).stdout.trim().split('\n').at(-1));
}

// V8 reserves 510 MB for machine code from Node.js 24 on, 128 MB before: 130,000 pages.
const MAX_FAULTS = 10_000;

test('a start and a worker thread touch no memory that V8 has only reserved', (t) => {
  const faults = run(t, `
    const { once } = require('node:events');
    const spanprof = require('spanprof');
    const faults = () => process.resourceUsage().minorPageFault;
    const before = faults();
    spanprof.start({ serviceName: 'start', destinations: [{ type: 'file', directory: process.argv[1] }] });
    const started = faults();
    const { Worker } = require('node:worker_threads');
    once(new Worker('require("node:worker_threads").parentPort.postMessage(1)', { eval: true }), 'message').then(async () => {
      const worker = faults() - started;
      await spanprof.stop();
      console.log(JSON.stringify({ start: started - before, worker }));
      process.exit(0);
    });`);
  assert.ok(faults.start < MAX_FAULTS && faults.worker < MAX_FAULTS, JSON.stringify(faults));
});

// V8 ends the process where it has no memory for the list of its code: 16 MB of line ends here.
test('without memory a start is one line and false', (t) => {
  const { isStarted, warnings } = run(t, `
    const { spawnSync } = require('node:child_process');
    const spanprof = require('spanprof');
    const warnings = [];
    spanprof.setLogger({ info() {}, warn: (line) => warnings.push(line) });
    const lines = new Function('\\n'.repeat(2_000_000) + 'return 1');
    lines();
    const pages = Number(require('node:fs').readFileSync('/proc/self/statm', 'utf8').split(' ')[0]);
    spawnSync('prlimit', ['--pid', String(process.pid), '--as=' + (pages * 4096 + (8 << 20))]);
    const isStarted = spanprof.start({ destinations: [] });
    console.log(JSON.stringify({ isStarted, warnings, lines: lines() }));
    process.exit(0);`);
  assert.equal(isStarted, false);
  assert.equal(warnings.length, 1, warnings.join('\n'));
  assert.match(warnings[0], /no memory for the profiler/);
});
