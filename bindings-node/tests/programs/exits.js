'use strict';
// Exits in the requested way in the middle of work: workers, new code, collections, labels.

const { isMainThread, parentPort } = require('node:worker_threads');

let made = 0;
function churn() {
  const kept = [];
  for (let number = 0; number < 2000; number++) kept.push({ number, text: String(number).repeat(3) });
  made += new Function('a', `return a + ${Math.random()}`)(1) + kept.length;
}

if (!isMainThread) {
  parentPort.postMessage('at work');
  setInterval(churn, 0);
} else {
  const { once } = require('node:events');
  const spanprof = require('spanprof');
  const [, , directory, way] = process.argv;
  const options = { serviceName: 'ends', sampleRate: 1000, wall: true, wallRate: 250, uploadInterval: 1, stopTimeout: 20, destinations: [{ type: 'file', directory }] };
  spanprof.start(options);
  const { Worker } = require('node:worker_threads');
  const working = async () => {
    const worker = new Worker(__filename);
    await once(worker, 'message');
    return worker;
  };
  const later = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  const ways = {
    async exit() {
      await Promise.all([working(), working()]);
      const busy = setInterval(churn, 0);
      await later(150);
      spanprof.tagWrapper({ at: 'exit' }, () => { churn(); process.exit(3); });
      clearInterval(busy);
    },
    async throws() {
      await working();
      setTimeout(() => { throw new RangeError('mine'); }, 100);
    },
    async rejects() {
      await working();
      setTimeout(() => Promise.reject(new RangeError('mine')), 100);
    },
    async exitWhileStopping() {
      await working();
      spanprof.stop();
      process.exit(4);
    },
    async exitWhileFlushing() {
      await working();
      spanprof.flush();
      process.exit(4);
    },
    async terminate() {
      for (let round = 0; round < 12; round++) {
        const worker = await working();
        await later(Math.random() * 30);
        await worker.terminate();
      }
      await spanprof.stop();
    },
    async cycles() {
      const worker = await working();
      const busy = setInterval(churn, 0);
      for (let round = 0; round < 15; round++) {
        await later(20);
        await spanprof.stop();
        await later(5);
        spanprof.start(options);
      }
      clearInterval(busy);
      await worker.terminate();
      await spanprof.stop();
    },
  };
  ways[way]();
}
