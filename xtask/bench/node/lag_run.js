'use strict';
// Blocks the event loop for given times. Each block has its own window, directory and trace. Prints the measured duration of each
// turn of the loop.
//
//     lag_run.js FOLDER REPEATS MILLISECONDS…

const path = require('node:path');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

function block(milliseconds) {
  const end = performance.now() + milliseconds;
  let x = 1;
  while (performance.now() < end) for (let i = 0; i < 1000; i++) x = (x * 31 + i) % 65537;
  return x;
}

async function main() {
  const [folder, ...words] = process.argv.slice(2);
  const [repeats, ...lengths] = words.map(Number);
  const blocks = [];
  for (let number = 0; number < repeats * lengths.length; number++) {
    const length = lengths[number % lengths.length];
    const directory = path.join(folder, String(number));
    spanprof.start({ serviceName: 'lag', sampleRate: 1000, uploadInterval: 3600, eventLoopBlock: 10, destinations: [{ type: 'file', directory }] });
    // The start can be a long turn: its window ends before the block.
    await timers.setTimeout(20);
    await spanprof.flush(10);
    require('node:fs').rmSync(directory, { recursive: true, force: true });
    // The cost of a first immediate belongs to no block.
    await timers.setImmediate();
    await timers.setTimeout(5);
    const traceId = (number + 1).toString(16).padStart(32, 'a');
    const began = process.hrtime.bigint();
    spanprof.tagWrapper({ trace_id: traceId, span_id: 'b'.repeat(16) }, block, length);
    // The turn ends before immediates run.
    await timers.setImmediate();
    const tookNs = Number(process.hrtime.bigint() - began);
    await timers.setTimeout(5);
    await spanprof.stop();
    blocks.push({ number, length, tookNs, traceId });
  }
  console.log(JSON.stringify(blocks));
}

main();
