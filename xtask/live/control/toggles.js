// Changes a busy profiler ten times per second by calls, the watched file and requests at once; then compares totals. Arguments:
// the working directory, seconds. Prints `changes COUNT`, `file_seconds SECONDS`, `totals RATIO` and `panics COUNT`.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const spanprof = require('spanprof');

const [directory, seconds] = process.argv.slice(2);
const configFile = path.join(directory, 'spanprof.yaml');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let changes = 0;
let total = 0;

function work(ms) {
  const until = Date.now() + ms;
  while (Date.now() < until) {
    for (let number = 0; number < 50_000; number += 1) total = (Math.imul(total, 31) ^ number) | 0;
    total += new Array(1000).fill(total).length;
  }
}

function write(text) {
  fs.writeFileSync(`${configFile}.new`, text);
  fs.renameSync(`${configFile}.new`, configFile);
}

function request(method, body = '') {
  const [host, port] = spanprof.stats()['pull.address'].split(':');
  const headers = { authorization: 'Bearer secret', 'content-length': Buffer.byteLength(body) };
  return new Promise((resolve, reject) => {
    const sent = http.request({ host, port, method, path: '/debug/spanprof', headers }, (response) => {
      response.resume();
      response.on('end', () => (response.statusCode === 200 ? resolve() : reject(new Error(`${method}: ${response.statusCode}`))));
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

const byCall = async (number) => spanprof.update({ enabled: number % 2 === 0, sampleRate: 1 + ((number * 37) % 1000), wall: number % 3 === 0 });
const byRequest = (number) => (number % 3 === 0
  ? request('PATCH', JSON.stringify({ heap: number % 2 === 0, gc: number % 2 === 1 }))
  : request(number % 3 === 1 ? 'POST' : 'DELETE'));
const byFile = async (number) => write(`sample_rate: ${1 + (number % 500)}\nenabled: ${number % 2 === 0}\n`);

async function repeat(change, until) {
  for (let number = 0; Date.now() < until; number += 1) {
    await change(number);
    changes += 1;
    await sleep(100);
  }
}

const counter = (...names) => names.reduce((sum, name) => sum + (spanprof.stats()[name] ?? 0), 0);

function processNs() {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}

async function sampledNs() {
  await spanprof.flush();
  return counter('samples.cpu_ns', 'samples.unseen_distributed_ns', 'samples.unseen_shown_ns');
}

async function main() {
  write('sample_rate: 100\n');
  // The governor would limit the rates that these changes set.
  const options = { fileDirectory: directory, configFile, pull: '127.0.0.1:0', pullToken: 'secret', profiles: 'all', cpuBudget: 0 };
  if (!spanprof.start(options)) throw new Error('not started');
  const end = Date.now() + Number(seconds) * 1000;
  const busy = async () => {
    while (Date.now() < end) {
      work(20);
      await sleep(0);
    }
  };
  await Promise.all([repeat(byCall, end), repeat(byRequest, end), repeat(byFile, end), busy()]);
  console.log('changes', changes);

  spanprof.update({ enabled: true, wall: false, heap: false });
  await sleep(1000);
  write('sample_rate: 123\n');
  const begun = Date.now();
  while (spanprof.stats()['config.sample_rate'] !== '123') {
    work(20);
    await sleep(0);
  }
  console.log('file_seconds', (Date.now() - begun) / 1000);

  spanprof.update({ enabled: false });
  const before = await sampledNs();
  let enabledNs = 0;
  for (let number = 0; number < 50; number += 1) {
    // The statistics are read outside of the measured time.
    const own = counter('cost.own_cpu_ns');
    const started = processNs();
    spanprof.update({ enabled: true, sampleRate: [20, 100, 1000][number % 3] });
    work(100);
    spanprof.update({ enabled: false });
    enabledNs += processNs() - started - (counter('cost.own_cpu_ns') - own);
    work(50);
  }
  console.log('totals', ((await sampledNs()) - before) / enabledNs);
  console.log('panics', counter('internal.panics'));
  await spanprof.stop();
}

main();
