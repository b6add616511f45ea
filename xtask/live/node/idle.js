'use strict';
// An idle server, observed from outside: the profiler's threads sleep, and at most the samples of a few timers are sent.
//
//     idle.js SECONDS

const fs = require('node:fs');
const { spawn } = require('node:child_process');
const timers = require('node:timers/promises');
const { fail, folder, into } = require('./suite.js');

const [seconds, directory] = process.argv.slice(2);
/** Samples of Node.js's own work, such as a garbage collection. */
const TRIES = 5;

/** Voluntary context switches of the profiler's and of all threads, and the CPU time of all in milliseconds. */
function readThreads(pid) {
  const sum = { ours: 0, all: 0, cpuMs: 0 };
  for (const thread of fs.readdirSync(`/proc/${pid}/task`)) {
    const read = (file) => fs.readFileSync(`/proc/${pid}/task/${thread}/${file}`, 'latin1');
    try {
      const status = read('status');
      const switches = Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)[1]);
      sum.all += switches;
      if (/^Name:\s+spanprof/.test(status)) sum.ours += switches;
      sum.cpuMs += Number(read('schedstat').split(' ', 1)[0]) / 1e6;
    } catch {
      // The thread ended meanwhile.
    }
  }
  return sum;
}

/** Seconds of a window. */
const WINDOW = 10;
/**
 * Timers of Node.js and of the package use some CPU, which the perf clock samples: each window may wake two threads and be sent.
 * A turn of the loop, such as the package's one per window, wakes the thread that looks for blocks, which sleeps twice.
 */
const isIdle = ({ ours, files }) => ours <= 1 + seconds / 2 && files <= 1 + seconds / WINDOW;

/** Number of profiles in a directory. */
const profiles = (directory) => fs.readdirSync(directory).filter((name) => name.endsWith('.pb.gz')).length;

async function main() {
  const sent = folder();
  const child = spawn(process.execPath, [__filename, seconds, sent], { stdio: ['ignore', 'pipe', 'inherit'] });
  // Kills the process however the suite ends.
  process.once('exit', () => child.kill('SIGKILL'));
  const code = new Promise((resolve) => child.once('exit', (code, signal) => resolve(signal ?? code)));
  await new Promise((resolve, reject) => child.stdout.once('data', resolve).once('end', () => reject(new Error('it did not start'))));
  const looks = [];
  for (let round = 0; round < TRIES; round++) {
    await timers.setTimeout(4000);
    const before = { ...readThreads(child.pid), files: profiles(sent) };
    await timers.setTimeout(seconds * 1000);
    const after = { ...readThreads(child.pid), files: profiles(sent) };
    looks.push(Object.fromEntries(Object.keys(after).map((key) => [key, Math.round(10 * (after[key] - before[key])) / 10])));
    if (isIdle(looks[round])) break;
  }
  console.log(`${process.version}: wake-ups, CPU and files in ${seconds} s each: ${JSON.stringify(looks)}`);
  if (!isIdle(looks.at(-1))) fail('our threads do not sleep, or something is sent');
  child.kill('SIGTERM');
  if (await code !== 0) fail(`ended with ${await code}`);
}

function program() {
  const spanprof = require('spanprof');
  if (!spanprof.start(into(directory, { sampleRate: 1000, uploadInterval: WINDOW }))) fail('it did not start');
  const server = require('node:http').createServer(() => {}).listen(0, '127.0.0.1', () => console.log('ready'));
  process.once('SIGTERM', () => {
    server.close();
    spanprof.stop().then(() => process.exit(0));
  });
}

if (directory === undefined) main().catch((error) => fail(error.stack));
else program();
