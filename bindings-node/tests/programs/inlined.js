'use strict';
// A hot loop calls three functions with 50, 30 and 20 parts of the work. The compiler inlines them, and their callee in another
// file.

const spanprof = require('spanprof');
const { step } = require('./inlined_step.js');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

function half(x) {
  for (let i = 0; i < 50; i++) x = step(x); // in half
  return x;
}
function third(x) {
  for (let i = 0; i < 30; i++) x = step(x); // in third
  return x;
}
function fifth(x) {
  for (let i = 0; i < 20; i++) x = step(x); // in fifth
  return x;
}
function hot(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) { // turns
    x = half(x); // calls half
    x = third(x); // calls third
    x = fifth(x); // calls fifth
  }
  return x;
}

spanprof.start({ serviceName: 'inlined', sampleRate: 1000, destinations: [{ type: 'file', directory }] });
const before = process.cpuUsage().user;
let sum = 0;
while (process.cpuUsage().user - before < seconds * 1e6) sum += hot(Math.ceil(4000 * Math.random()));
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, sum, stats: spanprof.stats() })));
