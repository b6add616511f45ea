'use strict';
// Blocks of the event loop of 20 to 110 ms: each is reported with its length within a millisecond, in the function that
// blocked and under its trace. A turn that was preempted between the profiler's and the loop's clock readings is invalid,
// hence several measurements per length.
//
//     blocks.js TRIES

const path = require('node:path');
const { ended, fail, folder } = require('./suite.js');
const root = path.join(__dirname, '../../..');
const { readAll } = require(path.join(root, 'bindings-node/tests/pprof_file.js'));

const LENGTHS_MS = Array.from({ length: 10 }, (_, at) => 20 + at * 10);
const MAX_OFF_MS = 1;

/** Length of some samples, in milliseconds. */
const sum = (samples) => samples.reduce((sum, { values }) => sum + values.event_loop_lag, 0) / 1e6;
const names = ({ stack }) => stack.map(({ name }) => name);

async function main() {
  const tries = Number(process.argv[2]);
  const left = new Set(LENGTHS_MS);
  const off = {};
  for (let round = 0; round < tries && left.size > 0; round++) {
    const directory = folder();
    const { code, signal, hung, stdout, stderr } = await ended([path.join(root, 'xtask/bench/node/lag_run.js'), directory, '1', ...[...left].map(String)]);
    if (hung || code !== 0) fail(`ended with ${hung ? 'nothing, it hung' : signal ?? code}\n${stderr}`);
    for (const { number, length, tookNs, traceId } of JSON.parse(stdout)) {
      const samples = readAll(path.join(directory, String(number)), 'event_loop_lag');
      const inBlock = samples.filter((sample) => names(sample).includes('block'));
      const others = inBlock.filter(({ labels }) => labels.trace_id !== traceId);
      if (others.length > 0) fail(`a block of ${length} ms is under the trace of others: ${JSON.stringify(others[0])}`);
      const waited = samples.filter((sample) => names(sample).includes('(not on the CPU)'));
      const offMs = sum(samples) - tookNs / 1e6;
      (off[length] ??= []).push(Number(offMs.toFixed(3)));
      // One of its stacks may be of the surrounding code.
      const isInBlock = sum(inBlock) >= 0.75 * (sum(samples) - sum(waited));
      if (Math.abs(offMs) <= MAX_OFF_MS && isInBlock) left.delete(length);
    }
  }
  console.log(`${process.version}: reported less measured, ms, by length: ${JSON.stringify(off)}`);
  if (left.size > 0) fail(`blocks of ${[...left].join(', ')} ms: none of ${tries} was reported within ${MAX_OFF_MS} ms in its function`);
}

main().catch((error) => fail(error.stack));
