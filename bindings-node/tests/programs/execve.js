'use strict';
// Calls `execve` while sampled at 1000 Hz.

const spanprof = require('spanprof');

function burn(milliseconds) {
  const started = process.cpuUsage();
  let sum = 0;
  for (;;) {
    for (let number = 0; number < 100_000; number++) sum += number % 7;
    const { user, system } = process.cpuUsage(started);
    if (user + system > milliseconds * 1000) return sum;
  }
}

spanprof.start({ sampleRate: 1000, destinations: [] });

const way = process.argv[2];
if (way === 'execve') {
  burn(15);
  process.execve('/bin/sh', ['sh', '-c', 'exit 7'], process.env);
}
if (way === 'refused') {
  for (let turn = 0; turn < 3; turn++) {
    try {
      process.execve('/bin/sh', 'no list', process.env);
      process.exit(4);
    } catch {
      // Expected.
    }
  }
  const samples = () => spanprof.stats()['clock.samples'] ?? spanprof.stats()['samples.cpu'];
  const before = samples();
  for (let turn = 0; turn < 100 && samples() === before; turn++) burn(50);
  process.exit(samples() > before ? 0 : 5);
}
