'use strict';
// A thousand chains that await in turns, each under its own label. Prints the CPU time of an await on the JavaScript thread as
// JSON, for ../every-language.
//
//     label_run.js none|AsyncLocalStorage|spanprof|datadog ADDRESS SECONDS

const fs = require('node:fs');
const { AsyncLocalStorage, createHook } = require('node:async_hooks');

const CHAINS = 1000;
/** Awaits of a chain in a second. */
const AWAITS = 125;

/** CPU time of the main thread in nanoseconds. */
function javaScriptNs() {
  return Number(fs.readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1').split(' ', 1)[0]);
}

async function chain(awaits) {
  let x = 1;
  for (let turn = 0; turn < awaits; turn++) {
    await null;
    x = (x * 31 + turn) % 65537;
  }
  return x;
}

/** Runs a chain under a label, for each profiler. */
const BY = {
  none: () => (_labels, body) => body(),
  AsyncLocalStorage() {
    const storage = new AsyncLocalStorage();
    return (labels, body) => storage.run(labels, body);
  },
  spanprof(address) {
    const spanprof = require('spanprof');
    spanprof.start({ serviceName: 'bench', endpoint: address });
    return spanprof.tagWrapper;
  },
  // As dd-trace does it: no hook where the continuation carries the context, else a hook at each switch.
  datadog() {
    const { time } = require('@datadog/pprof');
    const carried = Number(process.versions.node.split('.')[0]) >= 24;
    time.start({ intervalMicros: 10_000, durationMillis: 60_000, withContexts: true, collectCpuTime: true, useCPED: carried });
    if (carried) return (labels, body) => time.runWithContext(labels, body);
    const storage = new AsyncLocalStorage();
    createHook({ before: () => time.setContext(storage.getStore()) }).enable();
    return (labels, body) => storage.run(labels, body);
  },
};

async function main() {
  const [name, address, seconds] = process.argv.slice(2);
  const awaits = AWAITS * Number(seconds);
  const labelled = BY[name](address);
  const all = (turns) => Promise.all(Array.from({ length: CHAINS }, (_, number) => labelled({ chain: String(number % 50) }, () => chain(turns))));
  await all(Math.ceil(awaits / 10));
  const before = javaScriptNs();
  await all(awaits);
  const ns = (javaScriptNs() - before) / (CHAINS * awaits);
  console.log(JSON.stringify({ 'CPU of the JavaScript thread per await, ns': ns }));
  process.exit(0);
}

main();
