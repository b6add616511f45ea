'use strict';
// Three functions burn about 50, 30 and 20 parts of the CPU time, taking turns; prints what each really took, in nanoseconds.

const fs = require('node:fs');
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
/** Of this thread, where the kernel tells, to the tick: the process has threads that burn beside it. */
function ownCpuNow() {
  try {
    return Number(fs.readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ', 1)[0]);
  } catch {
    return cpuNow();
  }
}
const [before, ownBefore] = [cpuNow(), ownCpuNow()];
while (cpuNow() - before < seconds * 1e9) {
  for (const [burn, parts] of [[half, 5], [third, 3], [fifth, 2]]) {
    const begin = cpuNow();
    // Of random length: work that repeats with the kernel's tick would meet it always at the same place.
    burn(Math.ceil(parts * 300_000 * Math.random()));
    took[burn.name] += cpuNow() - begin;
  }
}
const total = ownCpuNow() - ownBefore;
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, took, total })));
