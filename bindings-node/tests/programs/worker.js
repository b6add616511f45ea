'use strict';
// The main thread and a worker with no code of ours burn CPU time in functions of their own, built-in code among it; then
// the profiler stops, starts again, and both burn again, the worker being the same.

const { isMainThread, parentPort } = require('node:worker_threads');

const squares = () => Array.from({ length: 300 }, (_, number) => number * number);

function burnInWorker(milliseconds) {
  const end = performance.now() + milliseconds;
  let made = 0;
  while (performance.now() < end) made += squares().length;
  return made;
}
function burnInMain(milliseconds) {
  const end = performance.now() + milliseconds;
  let made = 0;
  while (performance.now() < end) made += squares().length;
  return made;
}

if (!isMainThread) {
  parentPort.on('message', (milliseconds) => parentPort.postMessage(burnInWorker(milliseconds)));
} else {
  const { once } = require('node:events');
  const spanprof = require('spanprof');
  const [, , folder, switched] = process.argv;
  const workerThreads = switched === 'on';
  const start = (directory) => spanprof.start({ serviceName: 'worker', workerThreads, destinations: [{ type: 'file', directory }] });
  (async () => {
    start(folder);
    const { Worker } = require('node:worker_threads');
    const worker = new Worker(__filename);
    const losses = [];
    for (const round of workerThreads ? ['first', 'second'] : ['only']) {
      if (round === 'second') start(`${folder}/second`);
      worker.postMessage(1500);
      burnInMain(1500);
      await once(worker, 'message');
      await spanprof.flush();
      losses.push(spanprof.stats()['dropped.code_ended']);
      await spanprof.stop();
      // Code that comes and goes while nobody samples.
      for (let made = 0; made < 200; made++) new Function(`return ${made}`)();
    }
    await worker.terminate();
    console.log(JSON.stringify({ losses }));
  })();
}
