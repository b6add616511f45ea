'use strict';
// Leaks about 100 MB/s until it is killed; its heap at the peak is in the directory of the first argument.

const spanprof = require('spanprof');

const cache = [];
const kept = [];
let dropped = 0;

/** Elements of an array of 50 kB. */
const LENGTH = 6_250;

// Each has its loop: V8's sampler attributes the objects of an inlined function to its caller.
function fillCache() {
  for (let i = 0; i < 100; i++) cache.push(new Array(LENGTH).fill(0.5));
}

function remember() {
  for (let i = 0; i < 20; i++) kept.push(new Array(LENGTH).fill(0.5));
}

function churn() {
  for (let i = 0; i < 20; i++) dropped += new Array(LENGTH).fill(0.5).length;
}

spanprof.start({ serviceName: 'leaky', heapPeakDirectory: process.argv[2], destinations: [] });
// The drain thread of a debug build reads the functions of Node.js for up to half a second, which is the life of the leak.
spanprof.flush().then(() => {
  fillCache();
  setInterval(() => {
    remember();
    churn();
  }, 10);
});
