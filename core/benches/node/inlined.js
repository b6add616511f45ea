'use strict';
// Three small functions that the optimising compiler inlines into the loop that calls them. Truth: what each takes alone, in
// the same process and tier, times the calls that the loop made.

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

/* A loop for each alone: it inlines it as `hot` does. */
function aloneHalf(rounds, x) { for (let round = 0; round < rounds; round++) x = smallHalf(x); return x; }
function aloneThird(rounds, x) { for (let round = 0; round < rounds; round++) x = smallThird(x); return x; }
function aloneFifth(rounds, x) { for (let round = 0; round < rounds; round++) x = smallFifth(x); return x; }

/** Burns so much CPU time in the loop. */
function runInlined(cpuSeconds) {
  const end = cpuNs() + cpuSeconds * 1e9;
  let x = 1;
  while (cpuNs() < end) x = hot(ROUNDS, x);
  return x;
}

/** What each takes alone, for the same number of calls, in nanoseconds. Asked when nobody profiles any more. */
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

module.exports = { CALLER: hot.name, runInlined, truthOfInlined };
