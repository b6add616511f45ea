// The Node.js counterpart of buffered.py.
'use strict';

const spanprof = require('spanprof');

const [port, bufferDirectory] = process.argv.slice(2);
const PREFIX = 'export.0.';

function work() {
  let total = 0;
  for (let number = 0; number < 400_000; number += 1) total = (total * 31 + number) % 65_537;
  return total;
}

spanprof.start({
  serviceName: 'live-buffer',
  endpoint: `http://127.0.0.1:${port}`,
  bufferDirectory,
  uploadInterval: 1,
  timeout: 2,
  cpuBudget: 0,
});
setInterval(() => {
  const counters = Object.entries(spanprof.stats()).filter(([name]) => name.startsWith(PREFIX));
  console.log(JSON.stringify(Object.fromEntries(counters.map(([name, value]) => [name.slice(PREFIX.length), value]))));
}, 200);
let turn = 0;
setInterval(() => {
  turn += 1;
  spanprof.tagWrapper({ endpoint: `/orders/${turn % 50}` }, work);
}, 20);
