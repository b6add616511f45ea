'use strict';
// Starts spanprof in a program of this directory when the cell requires it; otherwise the run is the reference.

/** True when the profiler runs; false in the reference run, and on a machine without a clock, which is logged. */
function start(settings) {
  const directory = process.env.FIELD_PROFILES;
  if (!directory) return false;
  try {
    return require('spanprof').start({
      serviceName: 'field',
      clock: process.env.FIELD_CLOCK || 'auto',
      sampleRate: Number(process.env.FIELD_RATE || 100),
      wall: Boolean(process.env.FIELD_WALL),
      uploadInterval: 1,
      destinations: [{ type: 'file', directory, keep: 10_000 }],
      ...settings,
    });
  } catch (error) {
    if (error.kind !== 'no_clock') throw error;
    console.error(`spanprof: ${error.message.replaceAll('\n', ' ')}`);
    return false;
  }
}

/** Uses CPU time of this process; every profile must contain this function. */
function fieldWork(milliseconds) {
  const began = process.cpuUsage();
  let sum = 0;
  for (;;) {
    for (let number = 0; number < 100_000; number++) sum += number % 7;
    const { user, system } = process.cpuUsage(began);
    if (user + system > milliseconds * 1000) return sum;
  }
}

module.exports = { fieldWork, start };
