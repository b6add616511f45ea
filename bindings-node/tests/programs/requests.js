'use strict';
// A thousand interleaved requests, each with a kind, a trace and labels; each burns CPU time in the function of its kind after
// every await. The labels of a sample in such a function must be of that kind.

const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const [directory, requests] = [process.argv[2], Number(process.argv[3])];

/* A function per kind, so that a sample identifies its kind. */
function burnTea(turns) { let x = 1; for (let i = 0; i < turns; i++) x = (x * 31 + i) % 65537; return x; }
function burnMilk(turns) { let x = 1; for (let i = 0; i < turns; i++) x = (x * 37 + i) % 65539; return x; }
function burnRum(turns) { let x = 1; for (let i = 0; i < turns; i++) x = (x * 41 + i) % 65543; return x; }
const KINDS = [['tea', burnTea], ['milk', burnMilk], ['rum', burnRum]];

async function request(burn) {
  for (let step = 0; step < 6; step++) {
    if (step % 3 === 0) await timers.setImmediate();
    else if (step % 3 === 1) await null;
    else await new Promise((resolve) => setTimeout(resolve, step));
    burn(Math.ceil(80_000 * Math.random()));
  }
}

spanprof.start({ serviceName: 'requests', sampleRate: 250, destinations: [{ type: 'file', directory }] });
const all = Array.from({ length: requests }, (_, number) => {
  const [kind, burn] = KINDS[number % KINDS.length];
  const trace = (number % KINDS.length + 1).toString(16).padStart(32, 'a');
  const span = (number + 1).toString(16).padStart(16, 'b');
  return spanprof.tagWrapper({ kind, trace_id: trace, span_id: span }, request, burn);
});
Promise.all(all).then(async () => {
  const threads = Number(spanprof.stats()['runtime.node.threads_with_storage']);
  console.log(JSON.stringify({ threads, delivered: await spanprof.stop() }));
});
