'use strict';
// The Node.js counterpart of program.py.

const spanprof = require('spanprof');

const SPAN = { endpoint: '/cart', trace_id: '0af7651916cd43dd8448eb211c80319c', span_id: 'b7ad6b7169203331' };

spanprof.start({
  pull: '127.0.0.1:0',
  pullToken: 'live-token',
  destinations: [],
  serviceName: 'live-pull',
  profiles: 'all',
  heapInterval: 65536,
  uploadInterval: 3,
});
const kept = [];

function burn() {
  let total = 0;
  for (let number = 0; number < 2_000_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function allocate() {
  for (let number = 0; number < 100; number++) kept.push({ text: `object ${number}`, list: new Array(50).fill(number) });
  if (kept.length > 20_000) kept.splice(0, 5000);
}

function work() {
  spanprof.tagWrapper(SPAN, () => {
    burn();
    allocate();
  });
  setImmediate(work);
}

console.log('address', spanprof.stats()['pull.address']);
// The time limit of the suite.
setTimeout(() => process.exit(), 300_000);
work();
