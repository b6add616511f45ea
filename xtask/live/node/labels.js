'use strict';
// Label of each sample: a thousand promise chains, or a web server under load from another process. Each kind of work has its
// own function, so that the stack identifies it. No label may be wrong; 99.5 % of the samples must be labeled. Where Node.js
// has AsyncContextFrame, the profiler must have found its offsets.
//
//     labels.js chains|express|fastify SECONDS

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const timers = require('node:timers/promises');
const { ended, fail, folder, into } = require('./suite.js');

const [kind, seconds, port] = process.argv.slice(2);

function burnTea(turns) { let x = 1; for (let i = 0; i < turns; i++) x = (x * 31 + i) % 65537; return x; }
function burnMilk(turns) { let x = 1; for (let i = 0; i < turns; i++) x = (x * 37 + i) % 65539; return x; }
function burnRum(turns) { let x = 1; for (let i = 0; i < turns; i++) x = (x * 41 + i) % 65543; return x; }
const KINDS = { tea: burnTea, milk: burnMilk, rum: burnRum };
const traceOf = (name) => (Object.keys(KINDS).indexOf(name) + 1).toString(16).padStart(32, 'a');
const RATE_HZ = 250;
const IS_CARRIED = Number(process.versions.node.split('.')[0]) >= 24 || (process.env.NODE_OPTIONS ?? '').includes('async-context-frame');
const SPAN = 'b7ad6b7169203331';

/** Work between several kinds of awaits. */
async function serve(name) {
  for (let step = 0; step < 4; step++) {
    if (step === 1) await null;
    else if (step === 2) await timers.setImmediate();
    else if (step === 3) await new Promise((resolve) => setTimeout(resolve, 1));
    KINDS[name](Math.ceil(40_000 * Math.random()));
  }
  return { name };
}

async function chains(spanprof) {
  const names = Object.keys(KINDS);
  const until = Date.now() + seconds * 1000;
  while (Date.now() < until) {
    await Promise.all(Array.from({ length: 1000 }, (_, number) => {
      const name = names[number % names.length];
      return spanprof.tagWrapper({ 'http.route': `/${name}`, trace_id: traceOf(name), span_id: SPAN }, serve, name);
    }));
  }
}

async function underLoad(listening, close) {
  const { port: own } = await listening;
  const load = await ended([__filename, 'load', seconds, own], { limitMs: seconds * 4000 + 120_000 });
  await close();
  if (load.code !== 0) fail(`the load failed: ${load.stderr}`);
  console.log(load.stdout.trim());
}

function express(spanprof) {
  const app = require('express')();
  app.use(spanprof.expressMiddleware());
  for (const name of Object.keys(KINDS)) app.get(`/${name}`, async (_request, response) => response.json(await serve(name)));
  const server = http.createServer(app);
  const listening = new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address())));
  return underLoad(listening, () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); }));
}

function fastify(spanprof) {
  const app = require('fastify')();
  app.register(spanprof.fastifyPlugin);
  for (const name of Object.keys(KINDS)) app.get(`/${name}`, () => serve(name));
  return underLoad(app.listen({ port: 0, host: '127.0.0.1' }).then(() => app.server.address()), () => app.close());
}

/** Sixteen clients that share keep-alive connections. */
async function load() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  const until = Date.now() + seconds * 1000;
  let answered = 0;
  const client = async (number) => {
    // On a loaded machine there are few per second.
    for (let turn = number; Date.now() < until || answered < 200 * seconds; turn++) {
      const name = Object.keys(KINDS)[turn % 3];
      const headers = { traceparent: `00-${traceOf(name)}-${SPAN}-01` };
      const body = await new Promise((resolve, reject) => {
        http.get({ agent, port, path: `/${name}`, headers }, (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (part) => { text += part; }).on('end', () => resolve(text)).on('error', reject);
        }).on('error', reject);
      });
      if (JSON.parse(body).name !== name) fail(`asked for ${name}, got ${body}`);
      answered++;
    }
  };
  await Promise.all(Array.from({ length: 16 }, (_, number) => client(number)));
  agent.destroy();
  console.log(`${answered} requests in ${seconds} s`);
}

function checkLabels(directory) {
  const pprof = require(path.join(__dirname, '../../../bindings-node/tests/pprof_file.js'));
  const ofFunction = Object.fromEntries(Object.entries(KINDS).map(([name, burn]) => [burn.name, name]));
  const counts = { right: 0, without: 0, wrong: 0 };
  for (const { labels, stack, values } of pprof.readAll(directory, 'cpu')) {
    const frame = stack.find(({ name }) => Object.hasOwn(ofFunction, name));
    if (frame === undefined) continue;
    const name = ofFunction[frame.name];
    const { 'http.route': route, trace_id: trace, span_id: span } = labels;
    const samples = Math.round(values.cpu / (1e9 / RATE_HZ));
    if (route === undefined && trace === undefined) counts.without += samples;
    else if (route === `/${name}` && trace === traceOf(name) && span === SPAN) counts.right += samples;
    else counts.wrong += samples;
  }
  console.log(`${process.version} ${kind}: ${JSON.stringify(counts)}`);
  if (counts.wrong > 0) fail('samples carry the labels of others');
  if (counts.right < 10) fail('too few samples');
  if (counts.without > 0.005 * (counts.right + counts.without)) fail('more than 0.5 % of the samples are without labels');
}

async function main() {
  if (kind === 'load') return load();
  const spanprof = require('spanprof');
  const directory = folder();
  if (!spanprof.start(into(directory, { sampleRate: RATE_HZ }))) fail('it did not start');
  await { chains, express, fastify }[kind](spanprof);
  const isRead = Number(spanprof.stats()['runtime.node.threads_with_storage']) > 0;
  if (isRead !== IS_CARRIED) fail(`labels are ${isRead ? '' : 'not '}read by the handler`);
  await spanprof.stop();
  if (fs.readdirSync(directory).length === 0) fail('no profile was written');
  return checkLabels(directory);
}

main().catch((error) => fail(error.stack));
