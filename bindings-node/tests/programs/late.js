'use strict';
// Loops that V8 compiled while they ran, before the profiler came: one that goes on while it starts, and one that is entered
// anew. Each calls a function that is inlined into it.

const vm = require('node:vm');
const spanprof = require('spanprof');
const { cpuNs } = require('../../../core/benches/node/work.js');
const { step } = require('./inlined_step.js');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

let until = 0;
let turnsBefore = 30;
// Called from outside of JavaScript: what it does changes nothing in the code that calls it.
globalThis.tick = () => {
  if (--turnsBefore === 0) {
    spanprof.start({ serviceName: 'late', sampleRate: 500, destinations: [{ type: 'file', directory }] });
    until = cpuNs() + seconds * 1e9;
  }
  globalThis.isOver = turnsBefore < 0 && cpuNs() > until;
};
const tick = new vm.Script('tick()');
globalThis.isOver = false;

function goesOn() {
  let x = 1;
  for (let i = 1; !globalThis.isOver; i++) { // goes on
    x = step(x); // step of goesOn
    if (i % 1_000_000 === 0) tick.runInThisContext();
  }
  return x;
}
function entered(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) { // entered
    x = step(x); // step of entered
  }
  return x;
}

let sum = entered(20_000_000) + goesOn();
const before = cpuNs();
while (cpuNs() - before < seconds * 1e9) sum += entered(20_000_000);
spanprof.flush(10).then(async () => {
  const ended = spanprof.stats()['dropped.code_ended'];
  console.log(JSON.stringify({ sum, ended, delivered: await spanprof.stop() }));
});
