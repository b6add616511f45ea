'use strict';
// Three functions burn about 50, 30 and 20 parts of the CPU time, taking turns; prints what each really took, in nanoseconds.

const spanprof = require('spanprof');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

function half(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1103 + 12345) % 65537;
  return x;
}
function third(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1109 + 12347) % 65539;
  return x;
}
function fifth(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1117 + 12349) % 65543;
  return x;
}

spanprof.start({ serviceName: 'shares', destinations: [{ type: 'file', directory }] });
const took = { half: 0, third: 0, fifth: 0 };
const cpuNow = () => { const { user, system } = process.cpuUsage(); return (user + system) * 1000; };
const before = cpuNow();
while (cpuNow() - before < seconds * 1e9) {
  for (const [burn, parts] of [[half, 5], [third, 3], [fifth, 2]]) {
    const begin = cpuNow();
    // Of random length: work that repeats with the kernel's tick would meet it always at the same place.
    burn(Math.ceil(parts * 300_000 * Math.random()));
    took[burn.name] += cpuNow() - begin;
  }
}
const total = cpuNow() - before;
// Burnt by the profiler's own threads while one of the three ran.
const own = spanprof.stats()['cost.own_cpu_ns'];
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, took, total, own })));
