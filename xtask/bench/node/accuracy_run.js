'use strict';
// Spends CPU time in functions of known shares under spanprof. Prints the true values as JSON, for ../every-language.
//
//     accuracy_run.js "spanprof, mix|cycle-N|inlined RATE DEPTH" NUMBER FOLDER
//
// cycle-N: a part of 30 % of each N ms of CPU time.

const spanprof = require('spanprof');
const { cpuNs, mix, cycles } = require('./work.js');
const inlined = require('./inlined.js');

const CPU_SECONDS = 10;

function spend(kind, depth) {
  if (kind === 'inlined') return inlined.runInlined(CPU_SECONDS);
  return kind === 'mix' ? mix(depth, CPU_SECONDS) : cycles(depth, Number(kind.slice('cycle-'.length)), CPU_SECONDS);
}

async function main() {
  const [kind, sampleRate, depth] = process.argv[2].replace('spanprof, ', '').split(' ').map((word, at) => (at > 0 ? Number(word) : word));
  const destinations = [{ type: 'file', directory: process.argv[4] }];
  spanprof.start({ serviceName: 'accuracy', sampleRate, heap: false, gc: false, uploadInterval: 3600, maxStackDepth: 256, destinations });
  const [before, ownBefore] = [cpuNs(), spanprof.stats()['cost.own_cpu_ns']];
  let burnt = spend(kind, depth);
  const whole = cpuNs() - before - (spanprof.stats()['cost.own_cpu_ns'] - ownBefore);
  await spanprof.flush(30);
  const samples = spanprof.stats()['samples.cpu'];
  await spanprof.stop();
  if (kind === 'inlined') burnt = inlined.truthOfInlined();
  const sum = Object.values(burnt).reduce((total, ns) => total + ns, 0);
  // Inlined functions are measured alone: exact to one or two percent.
  const least = kind === 'inlined' ? 0.01 : 0.001;
  const checks = Object.entries({ ...burnt, spend: sum }).map(([name, ns]) => {
    const share = ns / sum;
    const error = Math.max(whole * Math.sqrt((share * (1 - share)) / samples), least * share * whole);
    return { name, type: 'cpu', function: name, truth: share * whole, error };
  });
  console.log(JSON.stringify({ checks }));
  process.exit(0);
}

main();
