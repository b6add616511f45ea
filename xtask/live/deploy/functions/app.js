'use strict';
// A function of Lambda: CPU time in `lambda_work`, then a wait. Responds with the CPU time that its thread used, its clock and its thread.

const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');

// Not `process.cpuUsage`: it has the threads of V8 and of the profiler, too. `process.threadCpuUsage` is newer than Node.js 22.
function threadSeconds() {
  return Number(fs.readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[0]) / 1e9;
}

function lambda_work(seconds) {
  const began = threadSeconds();
  while (threadSeconds() - began < seconds) for (let i = 0; i < 200_000; i++) Math.sqrt(i);
  return threadSeconds() - began;
}

exports.handler = async function lambda_handler(event, context) {
  const used = lambda_work(event.work);
  await sleep(event.wait * 1000);
  const clock = performance.now() / 1000;
  return { order: event.order, used, clock, thread: process.pid, request: context.awsRequestId };
};
