'use strict';
// Work under spanprof for so long, every window delivered; prints what our own clocks say of us as JSON.
//
//     own_run.js RATE DEPTH SECONDS ADDRESS

const spanprof = require('spanprof');
const { mix } = require('./work.js');

async function main() {
  const [rate, depth, seconds] = process.argv.slice(2).map(Number);
  mix(depth, 0.2);
  spanprof.start({ serviceName: 'bench', sampleRate: rate, endpoint: process.argv[5] });
  mix(depth, seconds);
  await spanprof.flush(10);
  const stats = spanprof.stats();
  await spanprof.stop();
  console.log(JSON.stringify({
    samples: stats['samples.cpu'],
    handlerNs: stats['clock.handler_ns'],
    threadsNs: stats['cost.own_cpu_ns'],
    clock: stats['clock.name'],
  }));
}

main();
