'use strict';
// One function burns CPU time from two lines, in the ratio 3 : 1; prints the number of turns of each.

const spanprof = require('spanprof');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];
const turned = { three: 0, one: 0 };
const { cpuNs } = require('../../../xtask/bench/node/work.js');

function burn(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1103 + 12345) % 65537;
  return x;
}
function work(turns) {
  burn(3 * turns); // three
  burn(turns); // one
  turned.three += 3 * turns;
  turned.one += turns;
}

spanprof.start({ serviceName: 'places', sampleRate: 500, destinations: [{ type: 'file', directory }] });
const before = cpuNs();
// Of random length: work in step with the kernel's tick would always be sampled at the same position.
while (cpuNs() - before < seconds * 1e9) work(Math.ceil(100_000 * Math.random()));
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, turned })));
