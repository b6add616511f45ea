'use strict';
// Collects garbage: young objects that V8 collects by itself, and requested collections of the whole heap (`--expose-gc`). Prints
// the duration of each type as Node.js observes it, in nanoseconds. Then does the same with `gc` off. Without heap samples, whose
// reading before a collection Node.js counts as part of the pause.

const { PerformanceObserver } = require('node:perf_hooks');
const timers = require('node:timers/promises');
const v8 = require('node:v8');
const vm = require('node:vm');
const spanprof = require('spanprof');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');
const [, , directory] = process.argv;
const observed = {};
const observer = new PerformanceObserver((list) => {
  for (const { duration, detail } of list.getEntries()) observed[detail.kind] = (observed[detail.kind] ?? 0) + duration * 1e6;
});

function collect(rounds) {
  const kept = [];
  for (let round = 0; round < rounds; round++) {
    for (let count = 0; count < 100_000; count++) {
      const object = { count, text: `text ${count}` };
      if (count % 10 === 0) kept.push(object);
    }
    gc();
  }
  return kept.length;
}

(async () => {
  observer.observe({ entryTypes: ['gc'] });
  spanprof.start({ serviceName: 'collections', sampleRate: 10, heap: false, destinations: [{ type: 'file', directory }] });
  collect(10);
  await spanprof.flush(60);
  // The observer is notified by the event loop.
  await timers.setTimeout(50);
  observer.disconnect();
  spanprof.update({ gc: false });
  await spanprof.flush(60);
  const files = require('node:fs').readdirSync(directory).filter((name) => name.startsWith('gc-')).length;
  collect(3);
  await spanprof.stop();
  console.log(JSON.stringify({ observed, files }));
})();
