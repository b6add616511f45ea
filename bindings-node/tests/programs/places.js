'use strict';
// One function burns CPU from two lines, three parts and one; prints how many turns each made.

const spanprof = require('spanprof');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];
const turned = { three: 0, one: 0 };
const { cpuNs } = require('../../../core/benches/node/work.js');

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
// Of random length: work that repeats with the kernel's tick would meet it always at the same place.
while (cpuNs() - before < seconds * 1e9) work(Math.ceil(100_000 * Math.random()));
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, turned })));
