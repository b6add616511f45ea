'use strict';
// Starts spanprof in a program of a cell when the cell requires it; otherwise the run is the reference.

/** True when the profiler runs; false in the reference run, and on a machine without a clock, which is logged. */
function start(settings) {
  const directory = process.env.FIELD_PROFILES;
  if (!directory) return false;
  return require('spanprof').start({
    serviceName: 'field',
    uploadInterval: 1,
    destinations: [{ type: 'file', directory, keep: 10_000 }],
    ...settings,
  });
}

/** CPU time of this thread; before Node.js 23.9 that of the process, with the threads of the profiler. */
const cpuUsage = (process.threadCpuUsage ?? process.cpuUsage).bind(process);

/** Uses CPU time; every profile must contain this function. */
function fieldWork(milliseconds) {
  const began = cpuUsage();
  let sum = 0;
  for (;;) {
    for (let number = 0; number < 100_000; number++) sum += number % 7;
    const { user, system } = cpuUsage(began);
    if (user + system > milliseconds * 1000) return sum;
  }
}

module.exports = { fieldWork, start };
