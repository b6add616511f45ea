'use strict';
// Three small functions that the optimizing compiler inlines into their calling loop. The true cost of each is its cost alone, in
// the same process and tier, times the number of calls of the loop.

const { cpuNs } = require('./work.js');

const ROUNDS = 20_000;

function smallHalf(x) {
  for (let i = 0; i < 50; i++) x = (x * 1103 + i) % 65537;
  return x;
}
function smallThird(x) {
  for (let i = 0; i < 30; i++) x = (x * 1109 + i) % 65537;
  return x;
}
function smallFifth(x) {
  for (let i = 0; i < 20; i++) x = (x * 1117 + i) % 65537;
  return x;
}

function hot(rounds, x) {
  for (let round = 0; round < rounds; round++) x = smallFifth(smallThird(smallHalf(x)));
  return x;
}

/* One loop for each function alone: it inlines the function as `hot` does. */
function aloneHalf(rounds, x) { for (let round = 0; round < rounds; round++) x = smallHalf(x); return x; }
function aloneThird(rounds, x) { for (let round = 0; round < rounds; round++) x = smallThird(x); return x; }
function aloneFifth(rounds, x) { for (let round = 0; round < rounds; round++) x = smallFifth(x); return x; }

/** Uses so much CPU time in the loop. */
function runInlined(cpuSeconds) {
  const end = cpuNs() + cpuSeconds * 1e9;
  let x = 1;
  while (cpuNs() < end) x = hot(ROUNDS, x);
  return x;
}

/** Cost of each function alone, for the same number of calls, in nanoseconds. Called when no profiler runs any more. */
function truthOfInlined() {
  const alone = { smallHalf: aloneHalf, smallThird: aloneThird, smallFifth: aloneFifth };
  return Object.fromEntries(Object.entries(alone).map(([name, loop]) => {
    for (let time = 0; time < 60; time++) loop(ROUNDS / 10, time);
    let best = Infinity;
    for (let time = 0; time < 15; time++) {
      const began = cpuNs();
      loop(ROUNDS, time);
      best = Math.min(best, cpuNs() - began);
    }
    return [name, best];
  }));
}

module.exports = { runInlined, truthOfInlined };
