'use strict';
// The profiled work: three functions of known cost below a stack of chosen depth. Their true cost is measured in the same
// process, by the process's CPU clock.

function half(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1103 + 12345) % 65537;
  return x;
}
function third(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1109 + 12347) % 65539;
  return x;
}
function fifth(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1117 + 12349) % 65543;
  return x;
}

/** Each function with its part of the work. */
const PARTS = [[half, 5], [third, 3], [fifth, 2]];

/** Calls the work `depth` frames down. */
function below(depth, work, turns) {
  return depth <= 1 ? work(turns) : below(depth - 1, work, turns) + 1;
}

/** CPU time of this process in nanoseconds, user and kernel. */
function cpuNs() {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}

/** Uses about so much CPU time; returns the measured time of each part, in nanoseconds. */
function mix(depth, cpuSeconds) {
  const burnt = { half: 0, third: 0, fifth: 0 };
  const end = cpuNs() + cpuSeconds * 1e9;
  while (cpuNs() < end) {
    for (const [work, parts] of PARTS) {
      const began = cpuNs();
      // Of random length: work in step with the kernel's tick would meet it always at the same point.
      below(depth, work, Math.ceil(parts * 100_000 * Math.random()));
      burnt[work.name] += cpuNs() - began;
    }
  }
  return burnt;
}

function part(untilNs) {
  while (cpuNs() < untilNs);
}
function rest(untilNs) {
  while (cpuNs() < untilNs);
}

/** Spends 30 % of each cycle of CPU time in one function, the rest in another; returns the measured nanoseconds of each. */
function cycles(depth, cycleMs, cpuSeconds) {
  const burnt = { part: 0, rest: 0 };
  let now = cpuNs();
  const end = now + cpuSeconds * 1e9;
  while (now < end) {
    for (const [work, share] of [[part, 0.3], [rest, 0.7]]) {
      const began = now;
      below(depth, work, began + share * cycleMs * 1e6);
      now = cpuNs();
      burnt[work.name] += now - began;
    }
  }
  return burnt;
}

module.exports = { cpuNs, mix, cycles };
