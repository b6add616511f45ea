'use strict';
// Express and Fastify under concurrent requests: each handler has its own method, route and trace only.

const test = require('node:test');
const assert = require('node:assert/strict');
const http = require('node:http');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');
const scope = require('../lib/scope.js');
const { native } = require('../lib/native.js');

const REQUESTS = 300;
const currentContext = () => ({ labels: spanprof.getLabels(), traceId: native.describeContext(scope.current()).traceId });
const traceOf = (number) => number.toString(16).padStart(32, 'a');

/** Sends a request over few keep-alive connections, which requests share. */
function send(agent, port, { path, method = 'GET', body, trace }) {
  return new Promise((resolve, reject) => {
    const headers = { ...(body && { 'content-type': 'application/json' }), ...(trace && { traceparent: `00-${trace}-b7ad6b7169203331-01` }) };
    const request = http.request({ agent, port, path, method, headers }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part)).on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(parts).toString();
        try { resolve(JSON.parse(text)); } catch { reject(new Error(`not JSON: ${response.statusCode} ${text}`)); }
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function checkEveryRequest(port) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  try {
    await Promise.all(Array.from({ length: REQUESTS }, async (_, number) => {
      const posts = number % 3 === 0;
      const trace = traceOf(number + 1);
      const seen = await send(agent, port, posts
        ? { path: '/api/orders', method: 'POST', body: JSON.stringify({ number }), trace }
        : { path: `/api/carts/${number}`, trace });
      const labels = { 'http.request.method': posts ? 'POST' : 'GET', 'http.route': posts ? '/api/orders' : '/api/carts/:id' };
      assert.deepEqual(seen, [{ labels, traceId: trace }, { labels, traceId: trace }]);
    }));
    assert.equal((await send(agent, port, { path: '/bare' }))[0].traceId, '');
  } finally {
    agent.destroy();
  }
}

async function twice() {
  const first = currentContext();
  await timers.setTimeout(1);
  return [first, currentContext()];
}

test('express: requests carry their method, route and trace', { timeout: 180_000 }, async () => {
  const express = require('express');
  const app = express();
  app.use(spanprof.expressMiddleware());
  app.use(express.json());
  const router = express.Router();
  router.get('/carts/:id', async (_request, response) => response.json(await twice()));
  router.post('/orders', async (_request, response) => response.json(await twice()));
  app.use('/api', router);
  app.get('/bare', async (_request, response) => response.json(await twice()));
  const server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  try {
    await checkEveryRequest(server.address().port);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
  assert.deepEqual(spanprof.getLabels(), {});
});

test('fastify: requests carry their method, route and trace', { timeout: 180_000 }, async () => {
  const app = require('fastify')();
  app.register(spanprof.fastifyPlugin);
  app.register(async (api) => {
    api.get('/carts/:id', twice);
    api.post('/orders', twice);
  }, { prefix: '/api' });
  app.get('/bare', twice);
  await app.listen({ port: 0, host: '127.0.0.1' });
  try {
    await checkEveryRequest(app.server.address().port);
  } finally {
    await app.close();
  }
  assert.deepEqual(spanprof.getLabels(), {});
});
