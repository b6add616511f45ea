'use strict';
// Cost of each profiler: CPU time of the same work with and without it, delivery included, in pairs inside one process. Also the
// cost of a spanprof sample by its own clocks. Prints Markdown with budgets.

const { child, given, median, medianInterval, shuffled, table, withReceiver } = require('./measuring.js');
const { PEERS } = require('./profilers.js');

const DEPTHS = [20, 100];
/** Rate of the pairs in Hz; at 100 Hz the difference is below the machine's noise for every profiler. */
const RATE_HZ = 1000;
const OWN_RATES_HZ = [100, 1000];
/** Budgets in microseconds per sample: the whole process, and the profiler's own part. */
const WHOLE_BUDGET = { 20: 10, 100: 14 };
const OWN_BUDGET = { 20: 4, 100: 8 };
const HANDLER_BUDGET = 3;

/** CPU time of the whole process with each profiler, divided by CPU time without. */
async function pairs({ node, short }, address) {
  const [processes, pairs, milliseconds] = short ? [1, 3, 60] : [2, 7, 800];
  const cases = DEPTHS.flatMap((depth) => ['none', 'spanprof', ...PEERS].map((name) => [name, RATE_HZ, depth]));
  const found = new Map(cases.map((one) => [one, { ratios: [], extraNs: [] }]));
  for (let round = 0; round < processes; round++) {
    for (const one of shuffled(cases)) {
      const { ratios, extraNs } = await child(node, 'cost_run.js', ...one, pairs, milliseconds, address);
      found.get(one).ratios.push(...ratios);
      found.get(one).extraNs.push(...extraNs);
    }
  }
  console.log(`CPU time of the whole process with the profiler, divided by that without; ${processes} processes of ${pairs} pairs; each leg is ` +
    `${milliseconds} ms of work and a window of equal length, encoded and delivered. \`none\` shows the machine's noise.\n`);
  table(['profiler', 'Hz', 'depth', 'ratio, median', '95 % interval', 'CPU per sample, µs (95 % interval)', 'our budget, µs'],
    cases.map((one) => {
      const [name, , depth] = one;
      const { ratios, extraNs } = found.get(one);
      const [ratio, low, high] = medianInterval(ratios);
      const micros = medianInterval(extraNs).map((value) => (value / 1000).toFixed(1));
      const budget = name === 'spanprof' ? `≤ ${WHOLE_BUDGET[depth]}` : '–';
      return [...one, ratio.toFixed(3), `${low.toFixed(3)} … ${high.toFixed(3)}`, `${micros[0]} (${micros[1]} … ${micros[2]})`, budget];
    }));
}

/** Cost of a spanprof sample by its own clocks. */
async function ours({ node, short }, address) {
  const ownSeconds = short ? 2 : 12;
  const rows = [];
  for (const depth of DEPTHS) {
    for (const rate of OWN_RATES_HZ) {
      const own = await child(node, 'own_run.js', rate, depth, ownSeconds, address);
      const micros = (ns) => (ns / own.samples / 1000).toFixed(2);
      const handler = (median(own.handlerSlicesNs) / 1000).toFixed(2);
      rows.push([rate, depth, own.clock, own.samples, micros(own.handlerNs), handler, micros(own.threadsNs),
        micros(own.handlerNs + own.threadsNs), `≤ ${OWN_BUDGET[depth]}`, (own.beginningNs / 1e6).toFixed(1)]);
    }
  }
  console.log(`spanprof by its own clocks, ${ownSeconds} s of work, every window encoded and sent. The handler's time is wall-clock time: its ` +
    'mean includes the time of other programs. The median is that of readings of 20 samples each. Own threads: cost of the samples ' +
    'after the first second; before it, cost of the start, when all code is reported.\n');
  table(['Hz', 'depth', 'clock', 'samples', `handler, µs per sample: mean (≤ ${HANDLER_BUDGET})`, 'median', 'own threads, µs per sample',
    'handler and threads, µs', 'budget, µs', 'own threads until the first window, ms'], rows);
}

async function main() {
  const asked = given();
  await withReceiver(async (address) => {
    await pairs(asked, address);
    await ours(asked, address);
  });
}

main();
