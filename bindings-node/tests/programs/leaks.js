'use strict';
// Leaks about 100 MB/s until it is killed; its heap at the peak is in the directory of the first argument.

const spanprof = require('spanprof');

const cache = [];
const kept = [];
let dropped = 0;

/** An array of 50 kB. */
const bytes = () => new Array(6_250).fill(0.5);

function fillCache() {
  for (let i = 0; i < 100; i++) cache.push(bytes());
}

function remember() {
  kept.push(bytes());
}

function churn() {
  dropped += bytes().length;
}

spanprof.start({ serviceName: 'leaky', heapPeakDirectory: process.argv[2], destinations: [] });
fillCache();
setInterval(() => {
  for (let i = 0; i < 20; i++) {
    remember();
    churn();
  }
}, 10);
