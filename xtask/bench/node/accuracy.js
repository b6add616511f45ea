'use strict';
// Shares and totals against the process's CPU clock, at several rates and depths. Also of periodic work, with and without a busy
// program on the same processor, and of functions that the optimizing compiler inlines, beside the peers. Each run has its own
// processor, except for the busy program. Prints Markdown.

const os = require('node:os');
const path = require('node:path');
const { execFileSync, spawn } = require('node:child_process');
const { child, given, table } = require('./measuring.js');

/** Target number of samples in a run, within its limit of CPU seconds. */
const SAMPLES = 5000;
const LONGEST_CPU_SECONDS = 15;
/** Prefix of a mix: runs beside a busy program on the same processor. */
const CONTENDED = 'contended-';
/** Cycle of a periodic program in milliseconds of CPU time; 4 is the kernel's tick at 250 Hz. */
const CYCLES_MS = [1, 4, 10, 100];
const PERIODIC = { rates: [100, 250, 1000], depths: [20], repeats: 2, profilers: ['spanprof'] };
const MIXES = {
  mix: { rates: [100, 250, 1000], depths: [20, 100], repeats: 5, profilers: ['spanprof'] },
  ...Object.fromEntries(['', CONTENDED].flatMap((beside) => CYCLES_MS.map((cycle) => [`${beside}cycle-${cycle}`, PERIODIC]))),
  inline: { rates: [1000], depths: [1], repeats: 3, profilers: ['spanprof', 'datadog', 'inspector'] },
};

/** CPU nanoseconds per function, callees included, and of all samples, from the files of the run. */
function read(command, folder) {
  const words = ['top', folder, '--type', 'cpu', '--limit', '0', '--json'];
  const said = JSON.parse(execFileSync(command, words, { encoding: 'utf8' }));
  return { seen: Object.fromEntries(said.rows.map((row) => [row.function, row.cum])), total: said.total };
}

/** Runs `body` while another program uses a whole processor. */
async function besideBusyProgram(processor, body) {
  const program = spawn('taskset', ['--cpu-list', String(processor), process.execPath, '-e', 'for (;;);'], { stdio: 'ignore' });
  try {
    return await body();
  } finally {
    program.kill('SIGKILL');
  }
}

async function run(asked, { kind, profiler, rate, depth, number }, processor) {
  const folder = path.join(asked.folder, `${kind}-${profiler}-${rate}-${depth}-${number}`);
  const cpuSeconds = asked.short ? 1 : Math.min(SAMPLES / rate, LONGEST_CPU_SECONDS);
  const isContended = kind.startsWith(CONTENDED);
  const mix = isContended ? kind.slice(CONTENDED.length) : kind;
  const measured = () => child(asked.node, 'accuracy_run.js', mix, profiler, rate, depth, cpuSeconds, folder, { processor });
  const truth = await (isContended ? besideBusyProgram(processor, measured) : measured());
  const { seen, total } = truth.seen ? { seen: truth.seen, total: truth.total } : read(asked.command, folder);
  const burnt = Object.values(truth.burnt).reduce((sum, ns) => sum + ns, 0);
  const found = Object.keys(truth.burnt).reduce((sum, name) => sum + (seen[name] ?? 0), 0);
  // Share of the total of the three: time charged to their caller counts as an error.
  const whole = kind === 'inline' ? seen[truth.caller] ?? 0 : found;
  const errors = Object.entries(truth.burnt).map(([name, ns]) => 100 * ((seen[name] ?? 0) / whole - ns / burnt));
  return {
    errors,
    bound: 300 * Math.sqrt(0.25 / Math.max(truth.samples, 1)),
    total: 100 * (total / truth.process - 1),
    rate: truth.samples / (truth.process / 1e9),
    clock: truth.clock,
    shares: Object.keys(truth.burnt).map((name) => `${((100 * (seen[name] ?? 0)) / whole).toFixed(1)}`).join(' / '),
    truth: Object.values(truth.burnt).map((ns) => ((100 * ns) / burnt).toFixed(1)).join(' / '),
  };
}

async function main() {
  const asked = given();
  const runs = Object.entries(MIXES).flatMap(([kind, { rates, depths, repeats, profilers }]) =>
    rates.flatMap((rate) => depths.flatMap((depth) => profilers.flatMap((profiler) =>
      Array.from({ length: asked.short ? 1 : repeats }, (_, number) => ({ kind, profiler, rate, depth, number }))))));
  const done = new Map();
  const waiting = [...runs];
  const processors = Array.from({ length: os.availableParallelism?.() ?? os.cpus().length }, (_, processor) => processor);
  await Promise.all(processors.map(async (processor) => {
    for (let one; (one = waiting.shift()) !== undefined;) done.set(one, await run(asked, one, processor));
  }));
  const of = (kind) => {
    const cases = new Map();
    for (const one of runs.filter((one) => one.kind === kind)) {
      const key = JSON.stringify([one.profiler, one.rate, one.depth]);
      cases.set(key, [...(cases.get(key) ?? []), done.get(one)]);
    }
    return [...cases].map(([key, results]) => [JSON.parse(key), results]);
  };
  const worst = (results) => Math.max(...results.flatMap((one) => one.errors.map(Math.abs))).toFixed(2);
  const within = (results) => `${results.filter((one) => one.errors.every((error) => Math.abs(error) <= one.bound)).length}/${results.length}`;
  const bias = (results) => Math.max(...results[0].errors.map((_, part) =>
    Math.abs(results.reduce((sum, one) => sum + one.errors[part], 0) / results.length))).toFixed(2);
  const range = (values) => [Math.min(...values), Math.max(...values)].map((value) => `${value < 0 ? '' : '+'}${value.toFixed(2)}`).join(' … ');
  console.log("50/30/20 mix; true shares by the process's CPU clock; total against it, minus the profiler's own threads.\n");
  table(['Hz', 'depth', 'clock', 'samples per CPU second', 'worst share error, points', '3 standard errors', 'runs within', 'mean bias, points', 'total, % off (range)'],
    of('mix').map(([[, rate, depth], results]) => [rate, depth, results[0].clock,
      (results.reduce((sum, one) => sum + one.rate, 0) / results.length).toFixed(0), worst(results), results[0].bound.toFixed(2),
      within(results), bias(results), range(results.map((one) => one.total))]));
  console.log('A periodic program: a part of 30 % of each cycle of CPU time; depth 20. `contended`: beside a busy program on the same processor.\n');
  table(['mix', 'Hz', 'clock', 'samples per CPU second', 'shares shown, % (part / rest)', 'worst error, points', '3 standard errors', 'runs within', 'mean bias, points'],
    Object.keys(MIXES).filter((kind) => kind.includes('cycle-')).flatMap((kind) => of(kind).map(([[, rate], results]) => [kind, rate, results[0].clock,
      (results.reduce((sum, one) => sum + one.rate, 0) / results.length).toFixed(0), results.map((one) => one.shares).join('; '),
      worst(results), results[0].bound.toFixed(2), within(results), bias(results)])));
  console.log("Three functions that the compiler inlines into their caller; shares of the caller's total time.\n");
  table(['profiler', 'Hz', 'shares shown, %', 'really', 'worst error, points', 'runs'],
    of('inline').map(([[profiler, rate], results]) => [profiler, rate, results[0].shares, results[0].truth, worst(results), results.length]));
}

main();
