'use strict';
// An event loop without blocks: short turns, then a wait for events that is longer than `eventLoopBlock`. Prints the requests for
// stacks, and the context switches of the thread that looks for blocks during the wait.

const fs = require('node:fs');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

function contextSwitches() {
  for (const thread of fs.readdirSync('/proc/self/task')) {
    const status = fs.readFileSync(`/proc/self/task/${thread}/status`, 'utf8');
    if (/^Name:\s+spanprof-loops$/m.test(status)) return Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status)[1]);
  }
  return null;
}

// Without the waits of requests, whose sampler walks the thread too.
spanprof.start({ serviceName: 'unblocked', eventLoopBlock: 100, offCpu: false, destinations: [{ type: 'file', directory: process.argv[2] }] });
const counters = () => ['self_walks', 'loop_blocks'].map((name) => spanprof.stats()[`runtime.node.${name}`]);
(async () => {
  await timers.setTimeout(300);
  const start = counters();
  for (let number = 0; number < 50; number++) await timers.setTimeout(4);
  const before = contextSwitches();
  await timers.setTimeout(3000);
  const after = contextSwitches();
  const [walks, blocks] = counters().map((count, at) => count - start[at]);
  await spanprof.stop();
  console.log(JSON.stringify({ before, after, walks, blocks }));
})();
