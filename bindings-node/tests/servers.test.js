'use strict';
// Requests of real frameworks without code of ours, with and without an SDK and its instrumentations: each has one endpoint, one
// tree of spans, and its samples.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');
const { spawn } = require('node:child_process');
const { readAll } = require('./pprof_file.js');
const { temporaryDirectory } = require('./run_node.js');

const PROGRAMS = path.join(__dirname, 'programs');
const SDK = path.join(PROGRAMS, 'sdk.js');
const REGISTER = path.join(__dirname, '..', 'lib', 'register.js');
const modules = createRequire(process.env.SERVER_MODULES ?? __filename);
/** Each framework with a package whose presence selects it. */
const FRAMEWORKS = { http: 'node:http', express: 'express', fastify: 'fastify', koa: 'koa', graphql: 'graphql', nest: '@nestjs/core' };

function isInstalled(name) {
  try {
    return modules.resolve(name) !== '';
  } catch {
    return false;
  }
}

/** Runs a server in a process of its own; what it printed, and its samples. */
async function run(t, framework, preloads, settings = {}) {
  const directory = temporaryDirectory(t);
  const env = { ...process.env, SPANPROF_FILE_DIRECTORY: directory, SPANPROF_SAMPLE_RATE: '500', ...settings };
  const argv = [...preloads.flatMap((file) => ['--require', file]), path.join(PROGRAMS, 'servers.js'), framework];
  const child = spawn(process.execPath, argv, { env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 170_000 });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name].on('data', (part) => { output[name] += part; });
  const status = await new Promise((resolve) => child.on('close', resolve));
  assert.equal(status, 0, output.stderr);
  const sidecar = fs.readdirSync(directory).find((name) => name.startsWith('cpu-') && name.endsWith('.json'));
  const resource = JSON.parse(fs.readFileSync(path.join(directory, sidecar), 'utf8'));
  return { ...JSON.parse(output.stdout), stderr: output.stderr, resource, cpu: readAll(directory, 'cpu'), requests: readAll(directory, 'requests'), awaited: readAll(directory, 'awaited') };
}

/** The ended requests by endpoint, and the slow one. */
function checkRequests({ statuses, requests }, routes) {
  assert.deepEqual(statuses, [...Array(21).fill(200), statuses[21], 500]);
  const counts = {};
  for (const { labels, values } of requests) {
    // Old instrumentations name spans `HTTP GET`.
    labels.endpoint = labels.endpoint.replace(/^HTTP /, '');
    // Instrumentations have root spans at the start: `Create Nest App`, `graphql.parseSchema`.
    if (!/^(GET|POST)/.test(labels.endpoint)) continue;
    counts[labels.endpoint] = (counts[labels.endpoint] ?? 0) + values.requests;
  }
  const [cart, order, fail] = routes;
  const expected = { [cart]: 21, [order]: 1 };
  expected[fail] = (expected[fail] ?? 0) + 1;
  assert.deepEqual(counts, expected);
  const slow = requests.reduce((longest, request) => (request.labels.duration > longest.labels.duration ? request : longest));
  assert.equal(slow.labels.endpoint, cart);
  assert.match(`${slow.labels.trace_id} ${slow.labels.span_id}`, /^[0-9a-f]{32} [0-9a-f]{16}$/);
  return slow.labels;
}

/** CPU time of the samples in a trace that are in the function of the planted work. */
function cpuOf({ cpu }, trace) {
  const rendering = cpu.filter(({ labels, stack }) => labels.trace_id === trace && stack.some(({ name }) => name === 'renderCart'));
  const valuesOf = (label) => [...new Set(rendering.map(({ labels }) => labels[label]))];
  return { milliseconds: rendering.reduce((sum, { values }) => sum + values.cpu, 0) / 1e6, spans: valuesOf('span_id'), routes: valuesOf('http.route') };
}

/** The slow request awaited its upstream, by its address. */
function checkAwaited({ awaited }, trace) {
  const [call, ...others] = awaited.filter(({ labels }) => labels.trace_id === trace);
  assert.ok(call !== undefined && others.length === 0, JSON.stringify(awaited));
  assert.match(call.stack[0].name, /^GET 127\.0\.0\.1/);
  assert.ok(call.values.awaited > 190e6 && call.values.awaited < 3e9, JSON.stringify(call.values));
}

const ROUTED = ['GET /api/cart/:id', 'POST /api/orders', 'GET /api/fail/:id'];

const routesOf = (framework) => (['http', 'graphql'].includes(framework) ? ['GET', 'POST', 'GET'] : ROUTED);

for (const [framework, name] of Object.entries(FRAMEWORKS)) {
  const skip = !isInstalled(name);

  test(`${framework}: without an SDK each request is listed by its route, with its samples`, { skip, timeout: 180_000 }, async (t) => {
    const ran = await run(t, framework, [REGISTER]);
    const slow = checkRequests(ran, routesOf(framework));
    const { milliseconds, spans } = cpuOf(ran, slow.trace_id);
    assert.ok(milliseconds > 150 && milliseconds < 700, `${milliseconds} ms`);
    assert.deepEqual(spans, [slow.span_id]);
    checkAwaited(ran, slow.trace_id);
  });

  // Which of both wraps the other's functions depends on the order, not on the framework.
  for (const order of framework === 'express' ? ['before', 'after'] : ['after']) {
    test(`${framework}: with an SDK that is set up ${order} the start each request is its tree of spans`, { skip, timeout: 180_000 }, async (t) => {
      const ran = await run(t, framework, order === 'before' ? [SDK, REGISTER] : [REGISTER, SDK]);
      const slow = checkRequests(ran, routesOf(framework));
      const tree = ran.spans.filter(({ trace }) => trace === slow.trace_id);
      const [root] = tree.filter(({ path: url }) => url === '/api/cart/slow');
      assert.deepEqual([root.id, root.kind], [slow.span_id, 1]);
      const { milliseconds, spans } = cpuOf(ran, slow.trace_id);
      assert.ok(milliseconds > 150 && milliseconds < 700, `${milliseconds} ms`);
      for (const id of spans) assert.ok(tree.some((span) => span.id === id), `${id} is a span of the SDK`);
      if (isInstalled('@opentelemetry/instrumentation-undici')) checkAwaited(ran, slow.trace_id);
      const { 'service.name': service, 'service.instance.id': instance } = ran.resource;
      assert.deepEqual([service, instance], ['shop-of-the-sdk', 'instance-1']);
    });
  }
}

test('a middleware of the program adds the route to the samples, and reports no request twice', { timeout: 180_000 }, async (t) => {
  for (const preloads of [[REGISTER], [REGISTER, SDK]]) {
    const ran = await run(t, 'expressMiddleware', preloads);
    const { milliseconds, routes } = cpuOf(ran, checkRequests(ran, ROUTED).trace_id);
    assert.ok(milliseconds > 150, `${milliseconds} ms`);
    assert.deepEqual(routes, ['/api/cart/:id']);
  }
});

test('requests=false leaves servers and tracer providers alone', { timeout: 180_000 }, async (t) => {
  const ran = await run(t, 'http', [REGISTER, SDK], { SPANPROF_REQUESTS: 'false' });
  assert.deepEqual(ran.requests, []);
  assert.notEqual(ran.resource['service.name'], 'shop-of-the-sdk');
});
