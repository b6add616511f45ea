'use strict';
// Makes V8 compile and collect, also on its own threads, and libuv's pool work, each for some CPU time.

const crypto = require('node:crypto');
const spanprof = require('spanprof');
const { cpuNs } = require('../../../xtask/bench/node/work.js');

const directory = process.argv[2];
const cpuMilliseconds = () => cpuNs() / 1e6;

function makeCode(milliseconds) {
  const body = Array.from({ length: 300 }, (_, n) => `const v${n} = (a, b) => a * ${n} + b;`).join('\n');
  let made = 0;
  for (const end = cpuMilliseconds() + milliseconds; cpuMilliseconds() < end; made++) new Function(`${body}\nreturn v7(1, ${made})`)();
  return made;
}
function makeGarbage(milliseconds) {
  let kept = [];
  for (const end = cpuMilliseconds() + milliseconds; cpuMilliseconds() < end;) {
    for (let n = 0; n < 5000; n++) kept.push({ n, text: `x${n}` });
    if (kept.length > 400_000) kept = [];
  }
  return kept.length;
}

spanprof.start({ serviceName: 'threads', sampleRate: 200, destinations: [{ type: 'file', directory }] });
(async () => {
  makeCode(300);
  makeGarbage(500);
  const derive = (resolve) => crypto.pbkdf2('secret', 'salt', 600_000, 64, 'sha512', resolve);
  const both = () => Promise.all([1, 2].map(() => new Promise(derive)));
  // New threads are found by the profiler's next scan, which may be late on a loaded machine.
  const scans = () => spanprof.stats()['clock.scans'];
  for (let before = scans(), round = 0; scans() < before + 2 && round < 40; round++) await both();
  await both();
  const delivered = await spanprof.stop();
  console.log(JSON.stringify({ delivered }));
})();
