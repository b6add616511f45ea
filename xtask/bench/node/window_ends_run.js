'use strict';
// Windows end periodically while the JavaScript thread only reads the clock. Prints its gaps around each end, in the middle of each
// window, and around a deliberate stop, as JSON.
//
//     window_ends_run.js none|spanprof WINDOWS SECONDS ADDRESS

const { spin, standStill } = require('./gaps.js');
const { fill } = require('./many_stacks.js');

const RATE_HZ = 1000;
/** Spinning time around each end: from before it until the window must be closed, encoded and sent. */
const BEFORE_MS = 50;
const SPIN_MS = 300;
const STOP_MS = 0.5;

async function main() {
  const [name, ...words] = process.argv.slice(2);
  const [windows, seconds] = words.map(Number);
  const spanprof = name === 'spanprof' ? require('spanprof') : undefined;
  spanprof?.start({ serviceName: 'bench', sampleRate: RATE_HZ, uploadInterval: seconds, endpoint: words[2] });
  const labelled = spanprof ? spanprof.tagWrapper : (_labels, body) => body();
  const closed = () => spanprof?.stats()['windows.closed'] ?? 0;
  const until = (end) => () => performance.now() >= end;
  const said = { ends: [], middles: [], samples: [], stacks: [], missed: 0 };
  // The first window begins now, or with the first sample.
  fill(labelled, until(performance.now() + 20));
  let end = performance.now() + seconds * 1000 - 20;
  for (let window = 0; window < windows; window++) {
    const before = spanprof?.stats()['samples.cpu'] ?? 0;
    fill(labelled, until(end - (seconds * 1000) / 2));
    const closedBefore = closed();
    said.middles.push(...spin(SPIN_MS));
    if (closed() !== closedBefore) said.missed++;
    fill(labelled, until(end - BEFORE_MS));
    const spun = spin(SPIN_MS);
    if (spanprof) {
      const stats = spanprof.stats();
      if (stats['windows.closed'] !== closedBefore + 1) said.missed++;
      said.samples.push(stats['samples.cpu'] - before);
      said.stacks.push(stats['stacks.unique']);
    }
    said.ends.push(...spun);
    end += seconds * 1000;
  }
  let stoppedMs = 0;
  const stop = () => {
    const began = performance.now();
    standStill(STOP_MS);
    stoppedMs = performance.now() - began;
  };
  said.stopSeenUs = Math.max(...spin(SPIN_MS, stop));
  said.stoppedUs = stoppedMs * 1000;
  await spanprof?.stop();
  console.log(JSON.stringify(said));
  process.exit(0);
}

main();
