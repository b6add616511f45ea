'use strict';
// Burns CPU time in an addon without frame pointers (`native_chain.c`), from two lines of JavaScript that C code calls.

const spanprof = require('spanprof');
const { cpuNs } = require('../../../xtask/bench/node/work.js');

const [, , addonFile, sampleRate, seconds, directory] = process.argv;
const addon = require(addonFile);

function called() {
  // Of random length: work in step with the kernel's tick would always be sampled at the same position.
  const turns = Math.ceil(20_000 * Math.random());
  addon.burn(turns); // once
  addon.burn(2 * turns); // twice
}

function calls() {
  addon.call(called); // calls
}

spanprof.start({ serviceName: 'native-chain', sampleRate: Number(sampleRate), destinations: [{ type: 'file', directory }] });
async function run(nanoseconds, clock) {
  const before = clock();
  while (clock() - before < nanoseconds) calls();
  await spanprof.flush(60_000);
}
(async () => {
  // Until no walk of a profile asked for a table. The thread that builds tables uses CPU time, too.
  const missing = () => spanprof.stats()['native.walk_ends.table_missing'];
  for (let runs = 0, before; runs < 2 || missing() !== before; runs++) {
    before = missing();
    await run(0.3e9, () => performance.now() * 1e6);
  }
  await run(Number(seconds) * 1e9, cpuNs);
  const stats = spanprof.stats();
  await spanprof.stop();
  console.log(JSON.stringify(stats));
})();
