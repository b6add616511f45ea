'use strict';
// A web service under one profiler: JSON in and out, checks, prices, sorting, HTML, a cache. Prints its port, serves until its
// standard input ends, then prints the profiler's counters as JSON.
//
//     service_run.js PROFILER ADDRESS

const http = require('node:http');

/** Orders that the cache holds; older ones are evicted. */
const CACHED = 2000;
/** How often an order is processed, so that a request takes as long as in the other languages. */
const REPEATS = 4;
const NAME = /^[a-z]+(-[0-9]+)+$/;
const SAMPLES_AND_LOSSES = /^(samples\.(cpu|wall|off_cpu|submitted)|heap\.samples|dropped\..*|windows\.closed)$/;

const TYPES = {
  cpu: { heap: false, gc: false },
  heap: { cpu: false, gc: false },
  default: {},
  all: { profiles: 'all' },
};
/** Length of a profile of dd-trace. */
const DATADOG_PERIOD_MS = 60_000;

/** Starts a profiler; returns its stop function, which returns counters. */
function start(name, address) {
  if (name.startsWith('spanprof, ')) {
    const spanprof = require('spanprof');
    const types = TYPES[name.slice('spanprof, '.length)];
    spanprof.start({ serviceName: 'bench', endpoint: address, ...types });
    return async () => {
      const counters = Object.entries(spanprof.stats()).filter(([key]) => SAMPLES_AND_LOSSES.test(key));
      await spanprof.stop();
      return Object.fromEntries(counters);
    };
  }
  if (name.startsWith('datadog')) {
    // As dd-trace uses it, with its default intervals.
    const { encode, heap, time } = require('@datadog/pprof');
    const settings = { intervalMicros: 10_000, durationMillis: DATADOG_PERIOD_MS, withContexts: true, collectCpuTime: true };
    const withTime = name.includes('wall');
    if (withTime) time.start(settings);
    heap.start(512 * 1024, 64);
    const deliver = async (profile) => fetch(address, { method: 'POST', body: await encode(profile) });
    setInterval(() => {
      if (withTime) deliver(time.stop(true));
      deliver(heap.profile());
    }, DATADOG_PERIOD_MS).unref();
  }
  return async () => ({});
}

function line({ name, count }) {
  if (!NAME.test(name)) throw new Error(name);
  let price = 0;
  for (let discount = 0; discount < count; discount++) price += 100 - (discount % 7);
  return { name: name.toUpperCase(), count, price, text: name.replaceAll('-', ' ') };
}

function order(orders, body) {
  const request = JSON.parse(body);
  const lines = request.lines.map(line).sort((a, b) => b.price - a.price || (a.name < b.name ? -1 : 1));
  const page = lines.map(({ text, price }) => `<tr><td>${text}</td><td>${price}</td></tr>`).join('');
  const total = lines.reduce((sum, { price }) => sum + price, 0);
  const answer = JSON.stringify({ order: request.order, lines, total, page });
  orders.delete(request.order);
  orders.set(request.order, answer);
  if (orders.size > CACHED) orders.delete(orders.keys().next().value);
  return answer;
}

function main() {
  const [name, address] = process.argv.slice(2);
  const stop = start(name, address);
  const orders = new Map();
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts).toString();
      let answer;
      for (let repeat = 0; repeat < REPEATS; repeat++) answer = order(orders, body);
      response.writeHead(200, { 'content-length': Buffer.byteLength(answer) });
      response.end(answer);
    });
  });
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
  process.stdin.resume().once('end', async () => {
    console.log(JSON.stringify(await stop()));
    process.exit(0);
  });
}

main();
