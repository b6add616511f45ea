'use strict';
// The Node.js counterpart of program.py: node program.js DIRECTORY PROBLEM

const { execSync } = require('node:child_process');
const { pbkdf2Sync } = require('node:crypto');
const { EventEmitter } = require('node:events');
const { setFlagsFromString } = require('node:v8');
const { runInNewContext } = require('node:vm');
const spanprof = require('spanprof');

const SECONDS = 6;
const cart = { items: Array.from({ length: 400 }, (_, number) => ({ sku: `A-${number}`, price: number })) };
const sessions = [];
const cache = new Map();
const bodies = [];
const orders = new EventEmitter().setMaxListeners(0);
const catalog = JSON.stringify(Array.from({ length: 200_000 }, (_, number) => ({ sku: `A-${number}`, price: number })));
setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

// The parts of a request use about as much CPU time each.
function readCart() {
  let total = 0;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function checkStock() {
  let total = 1;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function renderPage() {
  let total = 2;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function writeLog() {
  let total = 3;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function loadUser() {
  let total = 11;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function findOffers() {
  let total = 12;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function sortRows() {
  let total = 13;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function addTax() {
  let total = 4;
  for (let number = 0; number < 300_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function serve() {
  return readCart() + checkStock() + renderPage() + writeLog() + loadUser() + findOffers() + sortRows() + addTax();
}

function priceCart() {
  for (let number = 0; number < 500; number++) JSON.parse(JSON.stringify(cart));
}

function buildGraph() {
  const nodes = [];
  for (let number = 0; number < 60_000; number++) nodes.push({ next: nodes[number - 1], list: [number, number] });
  sessions.push(nodes);
  if (sessions.length > 20) sessions.shift();
}

function parseUpload() {
  let total = 7;
  for (let number = 0; number < 40_000_000; number++) total = (total * 31 + number) % 65537;
  return total;
}

function resizeImage() {
  execSync('sleep 0.1');
}

function hashPassword() {
  return pbkdf2Sync('password', 'salt', 150_000, 64, 'sha512');
}

function readCatalog() {
  return JSON.parse(catalog).length;
}

function subscribe(request) {
  const client = { request, events: [request] };
  orders.on('paid', (order) => client.events.push(order));
}

function keepBody() {
  bodies.push(Buffer.alloc(20_000));
}

async function twoLeaks() {
  for (let window = 0; window < 8; window++) {
    for (let number = 0; number < 250; number++) keepBody();
    // Called by Node.js: V8 attributes the allocations of an inlined function to its caller.
    for (let number = 0; number < 16_000; number++) setImmediate(subscribe, number);
    await new Promise((resolve) => setImmediate(resolve));
    collect();
    if (window < 7) await spanprof.flush();
  }
}

function remember(request) {
  cache.set(request, new Array(2_500).fill(request));
}

function openSession() {
  sessions.push(new Array(5_000).fill(0));
  if (sessions.length > 400) sessions.shift();
}

async function leaks() {
  for (let window = 0; window < 10; window++) {
    for (let request = 200 * window; request < 200 * window + 200; request++) {
      remember(request);
      openSession();
    }
    for (let number = 0; number < 10; number++) serve();
    // Objects are in use until a collection has found that they are not.
    collect();
    if (window < 9) await spanprof.flush();
  }
}

// One turn of the event loop for each request.
async function repeat(work, pause) {
  const until = performance.now() + SECONDS * 1000;
  while (performance.now() < until) {
    work();
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

const problems = {
  healthy: () => repeat(() => spanprof.tagWrapper({ endpoint: '/cart' }, serve), 2),
  hot: () => repeat(() => [serve(), priceCart()], 2),
  collects: () => repeat(() => [readCart(), buildGraph()], 2),
  blocks: () => repeat(() => [readCart(), parseUpload()], 100),
  executes: () => repeat(resizeImage, 300),
  hashes: () => repeat(hashPassword, 300),
  parses: () => repeat(readCatalog, 300),
  leaks,
  twoLeaks,
};

async function main([directory, problem]) {
  spanprof.start({
    serviceName: 'live-explain',
    destinations: [{ type: 'file', directory }],
    uploadInterval: 60,
    // Blocks of the event loop are found by the default profiles.
    offCpu: !['executes', 'hashes', 'parses'].includes(problem),
  });
  await problems[problem]();
  await spanprof.stop();
}

main(process.argv.slice(2));
