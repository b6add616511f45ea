'use strict';
// A parent and two forked children burn CPU time; the children end by `process.exit` or by SIGTERM. Each prints its CPU time since the start in
// nanoseconds, without the profiler's own threads.
//
//     family.js DIRECTORY exit|SIGTERM

const { fork } = require('node:child_process');
const spanprof = require('spanprof');

const [, , directory, way, role] = process.argv;
spanprof.start({ serviceName: 'family', destinations: [{ type: 'file', directory }] });

const started = process.cpuUsage();

/** Since the start, without the profiler's own threads. */
function spent() {
  const { user, system } = process.cpuUsage(started);
  return (user + system) * 1000 - spanprof.stats()['cost.own_cpu_ns'];
}

for (let sum = 0; spent() < 800e6 && sum >= 0; ) {
  for (let number = 0; number < 100_000; number++) sum += number % 7;
}
if (role === 'child') {
  console.log(spent());
  if (way === 'exit') process.exit(3);
  process.send('burnt');
  setInterval(() => {}, 1000);
} else {
  let children = 2;
  for (let number = 0; number < 2; number++) {
    const child = fork(__filename, [directory, way, 'child']);
    child.on('message', () => child.kill(way));
    child.on('exit', (code, signal) => {
      if ((signal ?? code) !== (way === 'exit' ? 3 : way)) process.exit(4);
      if (--children === 0) console.log(spent());
    });
  }
}
