'use strict';
// Creates functions with new names and sources, and drops them; prints repeatedly how many the profiler holds. The last one burns
// CPU time.

const spanprof = require('spanprof');

const [directory, count] = [process.argv[2], Number(process.argv[3])];
const text = (number) => `return function made${number}(turns) {
  let x = ${number};
  for (let i = 0; i < turns; i++) x = (x * 1103 + 12345) % 65537;
  return x;
}`;

spanprof.start({ serviceName: 'churn', sampleRate: 500, destinations: [{ type: 'file', directory }] });
const held = [];
const record = async () => {
  // Code events are applied by a drain.
  await spanprof.flush(60);
  const { runtime, ...flat } = spanprof.stats();
  held.push(Object.fromEntries(['codes', 'scripts', 'code_bytes', 'codes_forgotten', 'code_events_lost'].map((name) => {
    const key = `runtime.node.${name}`;
    return [name, Number(flat[key] ?? runtime?.node?.[name])];
  })));
};
(async () => {
  for (let number = 0; number < count; number++) {
    new Function(text(number))()(20);
    if (number % 500 === 0) {
      globalThis.gc();
      await new Promise((resolve) => { setTimeout(resolve, 1); });
    }
    if (number % Math.floor(count / 10) === 0) await record();
  }
  const last = new Function(text(count))();
  const before = process.cpuUsage().user;
  while (process.cpuUsage().user - before < 300_000) last(20_000);
  // V8 may sweep collected objects much later.
  for (let time = 0; time < 3; time++) {
    globalThis.gc();
    await record();
  }
  const delivered = await spanprof.stop();
  console.log(JSON.stringify({ delivered, held, last: `made${count}`, bytes: process.memoryUsage().rss }));
})();
