'use strict';
// Loops compiled by on-stack replacement before the profiler starts: one that runs across the start, and one that is entered
// again. Each calls an inlined function.

const vm = require('node:vm');
const spanprof = require('spanprof');
const { cpuNs } = require('../../../xtask/bench/node/work.js');
const { step } = require('./inlined_step.js');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

let until = 0;
let turnsBefore = 30;
// Called through `vm`, so that its work does not change the code of its caller.
globalThis.tick = () => {
  if (--turnsBefore === 0) {
    spanprof.start({ serviceName: 'late', sampleRate: 500, destinations: [{ type: 'file', directory }] });
    until = cpuNs() + seconds * 1e9;
  }
  globalThis.isOver = turnsBefore < 0 && cpuNs() > until;
};
const tick = new vm.Script('tick()');
globalThis.isOver = false;

function runsAcrossStart() {
  let x = 1;
  for (let i = 1; !globalThis.isOver; i++) { // runs across the start
    x = step(x); // step of runsAcrossStart
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

let sum = entered(20_000_000) + runsAcrossStart();
const before = cpuNs();
while (cpuNs() - before < seconds * 1e9) sum += entered(20_000_000);
spanprof.flush(10).then(async () => {
  const ended = spanprof.stats()['dropped.code_ended'];
  console.log(JSON.stringify({ sum, ended, delivered: await spanprof.stop() }));
});
