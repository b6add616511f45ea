'use strict';
// Burns CPU time in a function of known name under the profiler, while somebody else profiles too: V8's own profilers, asked
// for by flags, or the inspector, in this process or attached from another. Ends when a line comes in.

const spanprof = require('spanprof');

const [, , directory, who] = process.argv;

/** Stays, for the heap profile to show: many times what V8 lets pass between two of its samples. */
const kept = (globalThis.kept = []);
function burnAndMake(milliseconds) {
  const end = process.cpuUsage().user + milliseconds * 1000;
  while (process.cpuUsage().user < end) {
    kept.push(Array.from({ length: 300 }, (_, n) => n * n));
    if (kept.length > 5000) kept.length = 2500;
  }
  return kept.length;
}

spanprof.start({ serviceName: 'coexists', sampleRate: 200, destinations: [{ type: 'file', directory }] });
const end = () => spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, ...said })));
const said = {};
if (who === 'session') {
  const { Session } = require('node:inspector');
  const session = new Session();
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.start');
  burnAndMake(500);
  session.post('Profiler.stop', (_error, { profile }) => {
    said.seen = profile.nodes.map((node) => node.callFrame.functionName);
  });
  session.disconnect();
  end();
} else if (who === 'attached') {
  // The debugger calls it.
  globalThis.burnAndMake = burnAndMake;
  process.stdin.once('data', end);
} else {
  burnAndMake(500);
  end();
}
