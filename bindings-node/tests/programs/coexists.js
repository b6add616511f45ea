'use strict';
// Burns CPU time in a known function under the profiler, while another profiler runs too: V8's own, enabled by flags, or the
// inspector, in this process or attached. Ends when it receives a line.

const fs = require('node:fs');
const spanprof = require('spanprof');

const [, , directory, profiler] = process.argv;

/** CPU time of the main thread, in nanoseconds: that of the process includes the threads of the profilers. */
const usedNs = () => Number(fs.readFileSync('/proc/self/schedstat', 'latin1').split(' ')[0]);

/** Stays alive, for the heap profile: many times V8's sampling interval. */
const kept = (globalThis.kept = []);
function burnAndMake(milliseconds) {
  const end = usedNs() + milliseconds * 1e6;
  while (usedNs() < end) {
    for (let made = 0; made < 20; made++) kept.push(Array.from({ length: 300 }, (_, n) => n * n));
    if (kept.length > 5000) kept.length = 2500;
  }
  return kept.length;
}

spanprof.start({ serviceName: 'coexists', sampleRate: 200, destinations: [{ type: 'file', directory }] });
const end = () => spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, ...output })));
const output = {};
if (profiler === 'session') {
  const { Session } = require('node:inspector');
  const session = new Session();
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.start');
  burnAndMake(500);
  session.post('Profiler.stop', (_error, { profile }) => {
    output.seen = profile.nodes.map((node) => node.callFrame.functionName);
  });
  session.disconnect();
  end();
} else if (profiler === 'attached') {
  // The debugger calls it.
  globalThis.burnAndMake = burnAndMake;
  process.stdin.once('data', end);
} else {
  burnAndMake(500);
  end();
}
