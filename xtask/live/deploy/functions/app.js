'use strict';
// A function of Lambda: CPU time in `lambda_work`, then a wait. Responds with the CPU time that it used.

const { setTimeout: sleep } = require('node:timers/promises');

function lambda_work(seconds) {
  const began = process.cpuUsage();
  const used = () => { const { user, system } = process.cpuUsage(began); return (user + system) / 1e6; };
  while (used() < seconds) for (let i = 0; i < 20_000; i++) Math.sqrt(i);
  return used();
}

exports.handler = async function lambda_handler(event, context) {
  const used = lambda_work(event.work);
  await sleep(event.wait * 1000);
  return { order: event.order, used, request: context.awsRequestId };
};
