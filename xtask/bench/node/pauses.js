'use strict';
// Pauses of the JavaScript thread under each profiler: at start, with little code and with 20,000 live functions, loaded late or
// first; and at a requested end of a window of 6,000 labelled samples in 5,000 stacks. For spanprof also at periodic ends of
// windows. Prints Markdown.

const { bytesBelow, child, given, median, shuffled, table, withReceiver } = require('./measuring.js');
const { PEERS } = require('./profilers.js');

const FUNCTIONS = 20_000;
/** Milliseconds. */
const PAUSE_BUDGET = 0.2;

/** Gaps in a loop that only reads the clock, with and without ends of windows. */
async function windowEnds({ node, short }) {
  const [windows, seconds] = short ? [1, 2] : [4, 7];
  const runs = await withReceiver(async (address) => {
    const runs = {};
    for (const name of shuffled(['none', 'spanprof'])) runs[name] = await child(node, 'window_ends_run.js', name, windows, seconds, address);
    return runs;
  });
  const { samples, stacks, missed } = runs.spanprof;
  console.log(`Periodic ends of ${windows} windows (${samples.join(', ')} labelled samples, ${stacks.join(', ')} stacks; ` +
    `${missed} missed), at 1000 Hz, while JavaScript reads the clock without a pause: the largest gap of each millisecond, µs. Gaps ` +
    'without spanprof are the machine\'s. Reference: a deliberate stop, and its measured gap.\n');
  const row = (what, all, budget) => {
    const ordered = [...all].sort((a, b) => a - b);
    const at = (share) => ordered[Math.min(ordered.length - 1, Math.floor(share * ordered.length))].toFixed(1);
    return [what, all.length, at(0.5), at(0.99), at(0.999), at(1), all.filter((us) => us > PAUSE_BUDGET * 1000).length, budget];
  };
  table(['where', 'milliseconds', 'median', 'p99', 'p99.9', 'largest', `above ${PAUSE_BUDGET} ms`, 'budget'], [
    row('ends of windows', runs.spanprof.ends, `≤ ${PAUSE_BUDGET} ms`),
    row('middles of windows', runs.spanprof.middles, '–'),
    row('the same times without us', [...runs.none.ends, ...runs.none.middles], '–'),
  ]);
  table(['ruler', 'stopped, µs', 'shown, µs'], Object.entries(runs).map(([name, run]) => [name, run.stoppedUs.toFixed(0), run.stopSeenUs.toFixed(0)]));
}

async function main() {
  const { node, package: packed, modules, short } = given();
  const [repeats, functions] = short ? [1, 2000] : [5, FUNCTIONS];
  const names = ['spanprof', ...PEERS];
  await withReceiver(async (address) => {
    const starts = new Map();
    const cases = names.flatMap((name) => [[name, 0, 'late'], [name, functions, 'late'], [name, functions, 'first']]);
    for (let round = 0; round < repeats; round++) {
      for (const one of shuffled(cases)) {
        const took = await child(node, 'start_run.js', ...one, address);
        starts.set(String(one), [...(starts.get(String(one)) ?? []), took]);
      }
    }
    const cell = (key, ...one) => {
      const all = starts.get(String(one)).map((took) => took[key]);
      return `${median(all).toFixed(1)} (${Math.min(...all).toFixed(1)} … ${Math.max(...all).toFixed(1)})`;
    };
    console.log(`Start, ms: median of ${repeats} fresh processes (range).\n`);
    table(['profiler', 'loading it', 'start: little code', `${functions} live functions`, 'started before they were made'],
      names.map((name) => [name, cell('loadMs', name, 0, 'late'), cell('startMs', name, 0, 'late'),
        cell('startMs', name, functions, 'late'), cell('startMs', name, functions, 'first')]));

    const rotations = new Map(names.map((name) => [name, []]));
    for (let round = 0; round < (short ? 1 : 3); round++) {
      for (const name of shuffled(names)) rotations.get(name).push(await child(node, 'rotation_run.js', name, short ? 1 : 6, address));
    }
    console.log('End of a window, ms; the largest of each process. Largest gap: between two turns of a busy loop, during the ' +
      'rotation, and in an equal time before it, which is the machine\'s noise.\n');
    table(['profiler', 'samples', 'different stacks', 'the call', 'encoding, on the same thread', 'largest gap during', 'before'],
      names.map((name) => {
        const runs = rotations.get(name);
        const all = (key) => (runs[0][key] === undefined ? '–' : runs.map((run) => run[key].toFixed(2)).join(', '));
        return [name, median(runs.map((run) => run.samples)), median(runs.map((run) => run.stacks)), all('callMs'), all('encodeMs'), all('gapMs'), all('gapBeforeMs')];
      }));
  });
  await windowEnds({ node, short });
  console.log('Installed size, for this platform or for all platforms of the package.\n');
  table(['package', 'MB'], [['spanprof, packed', (require('node:fs').statSync(packed).size / 1e6).toFixed(2)],
    ...['spanprof', '@datadog/pprof', '@pyroscope/nodejs'].map((name) => [name, (bytesBelow(`${modules}/${name}`) / 1e6).toFixed(2)])]);
}

main();
