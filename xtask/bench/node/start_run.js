'use strict';
// Loads and starts one profiler in a fresh process, before or after so many functions are created. Prints the duration of each
// step, and the CPU time of the whole process until then.
//
//     start_run.js PROFILER FUNCTIONS late|first ADDRESS

const [name, count, order, address] = process.argv.slice(2);

const live = [];
function make() {
  for (let number = live.length; number < Number(count); number++) {
    const made = new Function('x', `return function made${number}(y) { return x + y + ${number}; }`)(number);
    made(1);
    live.push(made);
  }
}

/** CPU time of the process in milliseconds, and its page faults, since its start. */
function used() {
  const { user, system } = process.cpuUsage();
  return { cpu: (user + system) / 1000, faults: process.resourceUsage().minorPageFault };
}

if (order === 'late') make();
const profilers = require('./profilers.js');
const before = used();
const began = performance.now();
const profiler = profilers.load(name);
const loaded = performance.now();
const usedToLoad = used();
profiler.start(100, address);
const startMs = performance.now() - loaded;
const usedToStart = used();
const said = {
  loadMs: loaded - began,
  startMs,
  loadCpuMs: usedToLoad.cpu - before.cpu,
  startCpuMs: usedToStart.cpu - usedToLoad.cpu,
  faults: usedToStart.faults - before.faults,
};
if (order === 'first') make();
Promise.resolve(profiler.stop()).then(() => {
  console.log(JSON.stringify(said));
  process.exit(0);
});
