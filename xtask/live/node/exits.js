'use strict';
// Programs that exit at a random time, in each way that a program can exit: the exit code must be that without the profiler,
// none may be killed by a signal that it did not send, and none may hang.
//
//     exits.js PROGRAMS

const { isMainThread } = require('node:worker_threads');
const { ended, fail, folder, into } = require('./suite.js');

const [count, way, role] = process.argv.slice(2);
/** Exit code of a worker that exits itself; the main thread exits with 99 for another code. */
const OWN_CODE = 5;

/** Number of workers of each program. */
const ROLES = ['terminated', 'stays', 'exits'];

function churn() {
  const kept = Array.from({ length: 2000 }, (_, number) => ({ number, text: String(number) }));
  return new Function('a', `return a + ${Math.random()}`)(kept.length);
}

/** Kinds of exit, with the expected exit code or signal. */
const WAYS = {
  exit: [() => process.exit(7), 7],
  exitInScope: [() => require('spanprof').tagWrapper({ at: 'exit' }, () => process.exit(8)), 8],
  exitWhileStopping: [() => { require('spanprof').stop(); process.exit(9); }, 9],
  exitWhileFlushing: [() => { require('spanprof').flush(); process.exit(10); }, 10],
  throws: [() => { throw new RangeError('mine'); }, 1],
  rejects: [() => Promise.reject(new RangeError('mine')), 1],
  killed: [() => process.kill(process.pid, 'SIGTERM'), 'SIGTERM'],
  stops: [() => require('spanprof').stop().then(() => process.exit(0)), 0],
  aborts: [() => process.kill(process.pid, 'SIGKILL'), 'SIGKILL'],
};

function program() {
  const spanprof = require('spanprof');
  spanprof.start(into(folder(), { sampleRate: 2000, wall: true, uploadInterval: 1 }));
  const { Worker } = require('node:worker_threads');
  for (const role of ROLES) {
    const worker = new Worker(__filename, { argv: [count, way, role] });
    if (role === 'terminated') setTimeout(() => worker.terminate(), Math.random() * 200);
    else worker.once('exit', (code) => { if (code !== OWN_CODE) process.exit(99); });
  }
  setInterval(churn, 0);
  setTimeout(WAYS[way][0], Math.random() * 300);
}

async function all() {
  const names = Object.keys(WAYS);
  const codes = {};
  for (let number = 0; number < Number(count); number++) {
    const name = names[number % names.length];
    const { code, signal, hung, stderr } = await ended([__filename, count, name]);
    const expected = WAYS[name][1];
    if (hung) fail(`${name}: hung`);
    if ((signal ?? code) !== expected) fail(`${name}: ended with ${signal ?? code}, expected ${expected}\n${stderr}`);
    codes[name] = (codes[name] ?? 0) + 1;
  }
  console.log(`${process.version}: ${JSON.stringify(codes)}`);
}

if (!isMainThread) {
  setInterval(churn, 0);
  if (role === 'exits') setTimeout(() => process.exit(OWN_CODE), Math.random() * 200);
} else if (way === undefined) all();
else program();
