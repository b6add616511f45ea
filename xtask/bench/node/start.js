'use strict';
// Cost of a start on each Node.js, and additional cost of each worker thread while profiling: time, CPU time of the process,
// page faults, alternately with and without spanprof. Prints Markdown with budgets.

const { child, given, median, shuffled, table, withReceiver } = require('./measuring.js');

/** Milliseconds above a process without a profiler, for a start and for a worker. */
const TIME_BUDGET = 15;
const CPU_BUDGET = 10;
const NAMES = ['none', 'spanprof'];
/** As many as a server with one worker per task creates within minutes. */
const MANY_WORKERS = 300;
const AT_A_TIME = 8;

function spread(values, digits = 1) {
  return `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)} … ${Math.max(...values).toFixed(digits)})`;
}

async function main() {
  const { nodes, short } = given();
  const [starts, rounds, workers, many] = short ? [3, 1, 3, 10] : [15, 7, 10, MANY_WORKERS];
  const found = new Map(Object.keys(nodes).map((major) => [major, { starts: [], none: [], spanprof: [], many: undefined }]));
  await withReceiver(async (address) => {
    for (let round = 0; round < starts; round++) {
      for (const [major, node] of shuffled(Object.entries(nodes))) {
        found.get(major).starts.push(await child(node, 'start_run.js', 'spanprof', 0, 'late', address));
      }
    }
    const pairs = Object.entries(nodes).flatMap(([major, node]) => NAMES.map((name) => ({ major, node, name })));
    for (let round = 0; round < rounds; round++) {
      for (const { major, node, name } of shuffled(pairs)) {
        found.get(major)[name].push(await child(node, 'workers_run.js', name, workers, 1, address));
      }
    }
    for (const [major, node] of Object.entries(nodes)) {
      found.get(major).many = await child(node, 'workers_run.js', 'spanprof', many, AT_A_TIME, address);
    }
  });
  console.log(`Start in a fresh process: median of ${starts} (range).\n`);
  table(['Node.js', 'loading, ms', 'start, ms', 'budget', 'CPU of loading, ms', 'CPU of start, ms', 'budget', 'page faults of both'],
    [...found].map(([major, { starts: all }]) => {
      const of = (key, digits) => spread(all.map((one) => one[key]), digits);
      return [major, of('loadMs'), of('startMs'), `≤ ${TIME_BUDGET}`, of('loadCpuMs'), of('startCpuMs'), `≤ ${CPU_BUDGET}`, of('faults', 0)];
    }));
  console.log(`A worker thread, from its construction to its first message, ${workers} one after the other in each of ${rounds} ` +
    `processes; the budgets are for the difference. At last ${many} workers in one process, ${AT_A_TIME} at a time.\n`);
  const cells = (without, with_) => [without.toFixed(1), with_.toFixed(1), (with_ - without).toFixed(1)];
  table(['Node.js', 'ms without', 'with', 'more', 'budget', 'CPU ms without', 'with', 'more', 'budget', `${many} workers, s`],
    [...found].map(([major, { none, spanprof, many: all }]) => {
      const [tookWithout, took] = [none, spanprof].map((runs) => median(runs.flatMap((run) => run.took)));
      const [cpuWithout, cpu] = [none, spanprof].map((runs) => median(runs.map((run) => run.cpuMs)));
      return [major, ...cells(tookWithout, took), `≤ ${TIME_BUDGET}`, ...cells(cpuWithout, cpu), `≤ ${CPU_BUDGET}`, all.seconds.toFixed(1)];
    }));
}

main();
