'use strict';
// The Node.js counterpart of program.py, with a worker thread and a child process of its own. With profiles=all, stop() runs in a thread
// of libuv that is created between the marks. Else the end of the program stops the profiler. In both, the event loop, which ends the
// process where one of its own calls fails, does not run between the marks.

const fs = require('node:fs');
const crypto = require('node:crypto');
const { fork } = require('node:child_process');
const { once } = require('node:events');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

const isProfiled = process.argv[2] === 'profiled';
const spanprof = isProfiled ? require('spanprof') : null;
const MILLISECONDS = 350;

function work(number) {
  const hash = crypto.createHash('sha256');
  for (let round = 0; round < 10_000; round++) hash.update(String(round * number));
  for (const end = Date.now() + MILLISECONDS; Date.now() < end;) JSON.stringify(new Array(100).fill(number));
  return hash.digest('hex').slice(0, 8);
}

const labelled = (number) => (spanprof ? spanprof.tagWrapper({ k: String(number) }, work, number) : work(number));

const mark = (name) => fs.existsSync(`/faults/${name}`);

async function main() {
  console.log('ready');
  fs.readSync(0, Buffer.alloc(1));
  if (spanprof) {
    mark('begin');
    spanprof.start({ fileDirectory: process.env.DIRECTORY, uploadInterval: 0.1, stopTimeout: 10 });
    mark('end');
    process.prependListener('exit', () => mark('begin'));
    process.on('exit', () => mark('end'));
  }
  const worker = new Worker(__filename, { argv: [process.argv[2]], workerData: 2 });
  const ofWorker = new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
  const results = [labelled(1), await ofWorker];
  const child = fork(__filename, ['child']);
  results.push(...(await Promise.all([once(child, 'message'), once(child, 'exit')])).flat());
  if (spanprof && process.env.SPANPROF_PROFILES === 'all') {
    mark('begin');
    const stopped = spanprof.stop();
    mark('end');
    await stopped;
  }
  console.log(JSON.stringify(results));
}

if (!isMainThread) parentPort.postMessage(labelled(workerData));
else if (process.argv[2] === 'child') process.send(process.argv.length, () => process.disconnect());
else main();
