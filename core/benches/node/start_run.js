'use strict';
// Loads and starts one profiler in a fresh process, before or after so many functions are made; prints how long that took.
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

if (order === 'late') make();
const began = process.hrtime.bigint();
const profiler = require('./profilers.js').load(name);
profiler.start(100, address);
const startMs = Number(process.hrtime.bigint() - began) / 1e6;
if (order === 'first') make();
Promise.resolve(profiler.stop()).then(() => {
  console.log(JSON.stringify({ startMs, live: live.length }));
  process.exit(0);
});
