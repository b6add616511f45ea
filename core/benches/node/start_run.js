'use strict';
// Loads and starts one profiler in a fresh process, before or after so many functions are made; prints how long each took.
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
const profilers = require('./profilers.js');
const began = performance.now();
const profiler = profilers.load(name);
const loaded = performance.now();
profiler.start(100, address);
const said = { loadMs: loaded - began, startMs: performance.now() - loaded };
if (order === 'first') make();
Promise.resolve(profiler.stop()).then(() => {
  console.log(JSON.stringify(said));
  process.exit(0);
});
