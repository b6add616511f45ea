'use strict';
// Six phases of equal CPU time under a label. Prints `phase NAME NS` with the kernel's CPU time of the main thread in each
// (schedstat), then `stats JSON`. The settings are environment variables.
const fs = require('node:fs');
const spanprof = require('spanprof');

const ran = () => Number(fs.readFileSync('/proc/self/schedstat', 'latin1').split(' ')[0]);

function burn(ns) {
  const end = ran() + ns;
  let total = 0;
  while (ran() < end) for (let number = 0; number < 300_000; number++) total += number & 7;
  return total;
}

async function main() {
  spanprof.start();
  for (let number = 0; number < 6; number++) {
    const before = ran();
    spanprof.tagWrapper({ phase: `p${number}` }, () => burn(250_000_000));
    console.log(`phase p${number} ${ran() - before}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  console.log('stats', JSON.stringify(spanprof.stats()));
  await spanprof.stop();
}

main();
