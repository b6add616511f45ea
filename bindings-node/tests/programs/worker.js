'use strict';
// The main thread and a worker without spanprof code burn CPU time in functions of their own and builtins. Then the profiler
// stops and starts again, and both burn again in the same worker.

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
      // Code is created and dropped while no profiler runs.
      for (let made = 0; made < 200; made++) new Function(`return ${made}`)();
    }
    await worker.terminate();
    console.log(JSON.stringify({ losses }));
  })();
}
