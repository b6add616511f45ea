// A program that leaks: each request adds to a cache that nothing empties. Sessions expire after two windows. Writes the heap
// of eight windows into a directory.
//
//     npm install spanprof
//     node --expose-gc leak.js profiles
//     spanprof top profiles --type inuse_space --label age=old
'use strict';

const spanprof = require('spanprof');

const cache = new Map();
const sessions = [];

function remember(request) {
  cache.set(request, new Array(2_500).fill(0));
}

function openSession(request) {
  if (sessions.length === 1_000) sessions.shift();
  sessions.push(new Array(5_000).fill(request));
}

function render(request) {
  return Array.from({ length: 1_000 }, (_, item) => `<li>${request} ${item}</li>`).join('');
}

function serve(first, count) {
  for (let request = first; request < first + count; request++) {
    remember(request);
    openSession(request);
    render(request);
  }
}

async function main(directory) {
  spanprof.start({ serviceName: 'checkout-leak', destinations: [{ type: 'file', directory }] });
  for (let window = 0; window < 8; window++) {
    serve(500 * window, 500);
    // Objects are in use until a collection: with --expose-gc, the windows have no garbage.
    globalThis.gc?.();
    // Ends a window. In a service, one ends every 10 seconds.
    if (window < 7) await spanprof.flush();
  }
  await spanprof.stop();
}

main(process.argv[2]);
