'use strict';
// One expression burns CPU time inside a tag wrapper, after awaits.

const spanprof = require('spanprof');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

function burn(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) {
    x = (x * 1103 + 12345) % 65537; // burns
  }
  return x;
}

spanprof.start({ serviceName: 'labelled', sampleRate: 500, destinations: [{ type: 'file', directory }] });
const before = process.cpuUsage().user;
spanprof.tagWrapper({ endpoint: '/cart' }, async () => {
  while (process.cpuUsage().user - before < seconds * 1e6) {
    await null;
    burn(Math.ceil(100_000 * Math.random()));
  }
}).then(() => spanprof.stop()).then((delivered) => console.log(JSON.stringify({ delivered })));
