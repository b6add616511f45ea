'use strict';
// What each profiler costs: CPU of the same work with and without it, in pairs inside one process; and what a sample of ours
// costs by our own clocks, delivery included. Prints Markdown.

const { child, given, medianInterval, shuffled, table, withReceiver } = require('./measuring.js');
const { PEERS } = require('./profilers.js');

const DEPTHS = [20, 100];
const RATES_HZ = [100, 1000];

async function main() {
  const { node, short } = given();
  const [processes, pairs, milliseconds, ownSeconds] = short ? [1, 3, 60, 2] : [2, 14, 200, 12];
  await withReceiver(async (address) => {
    const cases = DEPTHS.flatMap((depth) => [['none', 100, depth],
      ...['spanprof', ...PEERS].flatMap((name) => RATES_HZ.map((rate) => [name, rate, depth]))]);
    const found = new Map(cases.map((one) => [one, { ratios: [], extraNs: [] }]));
    for (let round = 0; round < processes; round++) {
      for (const one of shuffled(cases)) {
        const { ratios, extraNs } = await child(node, 'cost_run.js', ...one, pairs, milliseconds, address);
        found.get(one).ratios.push(...ratios);
        found.get(one).extraNs.push(...extraNs);
      }
    }
    console.log(`CPU of the whole process with the profiler over without, ${processes} processes of ${pairs} pairs of ` +
      `${milliseconds} ms each; \`none\` shows what the machine's noise makes of nothing.\n`);
    table(['profiler', 'Hz', 'depth', 'ratio, median', '95 % interval', 'CPU per sample period, µs (95 % interval)'],
      cases.map((one) => {
        const { ratios, extraNs } = found.get(one);
        const [ratio, low, high] = medianInterval(ratios);
        const micros = medianInterval(extraNs).map((value) => (value / 1000).toFixed(1));
        const perSample = one[0] === 'none' ? '–' : `${micros[0]} (${micros[1]} … ${micros[2]})`;
        return [...one, ratio.toFixed(3), `${low.toFixed(3)} … ${high.toFixed(3)}`, perSample];
      }));
    const rows = [];
    for (const depth of DEPTHS) {
      for (const rate of RATES_HZ) {
        const own = await child(node, 'own_run.js', rate, depth, ownSeconds, address);
        const micros = (ns) => (ns / own.samples / 1000).toFixed(2);
        rows.push([rate, depth, own.clock, own.samples, micros(own.handlerNs), micros(own.threadsNs), micros(own.handlerNs + own.threadsNs)]);
      }
    }
    console.log(`spanprof by its own clocks, ${ownSeconds} s of work, every window encoded and sent.\n`);
    table(['Hz', 'depth', 'clock', 'samples', 'handler, µs per sample', 'own threads, µs per sample', 'together, µs'], rows);
  });
}

main();
