'use strict';
// A server of a web framework that knows nothing of the profiler: `framework`. Sends requests to itself, of which one is slow and one
// fails, and prints the spans of the SDK, if one is registered (`sdk.js`). The packages are those of `SERVER_MODULES`.

const http = require('node:http');
const net = require('node:net');
const { createRequire } = require('node:module');
const load = createRequire(process.env.SERVER_MODULES ?? __filename);

const [framework] = process.argv.slice(2);
const QUICK = 20;

/** Burns CPU time in a function of its own. */
function renderCart(id) {
  const until = process.cpuUsage().user + (id === 'slow' ? 600_000 : 500);
  let sum = 0;
  while (process.cpuUsage().user < until) for (let turn = 0; turn < 10_000; turn++) sum += Math.sqrt(turn + sum);
  return { sum };
}
/** A service that answers late. No HTTP server of Node.js, which would have requests of its own. */
const upstream = net.createServer((socket) => socket.once('data', () => setTimeout(() => {
  socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok');
}, 200))).listen(0, '127.0.0.1').unref();
async function cart(id) {
  if (id === 'slow') await (await fetch(`http://127.0.0.1:${upstream.address().port}/`)).text();
  else await new Promise(setImmediate);
  return renderCart(id);
}
const order = (body) => renderCart(body.number);
const fail = () => { throw Object.assign(new Error('on purpose'), { expose: false }); };

const SERVERS = {
  http: () => http.createServer((request, response) => {
    const end = (status, body) => response.writeHead(status).end(JSON.stringify(body));
    if (request.method === 'POST') {
      let text = '';
      request.on('data', (part) => { text += part; });
      request.on('end', () => end(200, order(JSON.parse(text))));
    } else if (request.url.startsWith('/api/fail')) end(500, {});
    else cart(request.url.split('/').pop()).then((body) => end(200, body));
  }),
  express(...middlewares) {
    const express = load('express');
    const [app, router] = [express(), express.Router()];
    for (const middleware of middlewares) app.use(middleware);
    app.use(express.json());
    router.get('/cart/:id', (request, response, next) => { cart(request.params.id).then((body) => response.json(body), next); });
    router.post('/orders', (request, response) => response.json(order(request.body)));
    router.get('/fail/:id', fail);
    app.use('/api', router);
    app.use((_error, _request, response, _next) => response.status(500).json({}));
    return http.createServer(app);
  },
  expressMiddleware: () => SERVERS.express(require('spanprof').expressMiddleware()),
  async fastify() {
    const app = load('fastify')();
    app.register(async (api) => {
      api.get('/cart/:id', (request) => cart(request.params.id));
      api.post('/orders', async (request) => order(request.body));
      api.get('/fail/:id', async () => fail());
    }, { prefix: '/api' });
    await app.ready();
    return app.server;
  },
  koa() {
    const [Koa, Router] = [load('koa'), load('@koa/router')];
    const [app, router] = [new Koa(), new (Router.Router ?? Router)({ prefix: '/api' })];
    router.get('/cart/:id', async (context) => { context.body = await cart(context.params.id); });
    router.post('/orders', async (context) => {
      let text = '';
      for await (const part of context.req) text += part;
      context.body = order(JSON.parse(text));
    });
    router.get('/fail/:id', fail);
    app.use(router.routes());
    app.on('error', () => {});
    return http.createServer(app.callback());
  },
  graphql() {
    const { buildSchema, graphql } = load('graphql');
    const schema = buildSchema('type Query { cart(id: String): Float }');
    const rootValue = { cart: async ({ id }) => (await cart(id)).sum };
    return http.createServer(async (request, response) => {
      const id = request.url.split('/').pop();
      const result = await graphql({ schema, rootValue, source: `{ cart(id: "${id}") }` });
      response.writeHead(request.url.startsWith('/api/fail') ? 500 : 200).end(JSON.stringify(result));
    });
  },
  async nest() {
    load('reflect-metadata');
    const { Controller, Module, Get, Post } = load('@nestjs/common');
    class Shop { cart(request) { return cart(request.params.id); } order(request) { return order(request.body); } fail() { return fail(); } }
    const { Req } = load('@nestjs/common');
    for (const [name, decorator] of [['cart', Get('cart/:id')], ['order', Post('orders')], ['fail', Get('fail/:id')]]) {
      decorator(Shop.prototype, name, Object.getOwnPropertyDescriptor(Shop.prototype, name));
      Req()(Shop.prototype, name, 0);
    }
    Controller('api')(Shop);
    class Root {}
    Module({ controllers: [Shop] })(Root);
    const app = await load('@nestjs/core').NestFactory.create(Root, { logger: false });
    await app.init();
    return app.getHttpServer();
  },
};

/** Sends a request without the instrumented client of Node.js. */
function send(port, path, body) {
  const head = body ? `POST ${path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: ${body.length}` : `GET ${path} HTTP/1.1`;
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = net.connect(port, '127.0.0.1')
      .on('error', reject)
      .on('data', (part) => { answer += part; })
      .on('close', () => resolve(Number(answer.split(' ', 2)[1])));
    // Not `end`: a server aborts the request of a client that has closed its side.
    socket.write(`${head}\r\nHost: localhost\r\nConnection: close\r\n\r\n${body ?? ''}`);
  });
}

(async () => {
  const server = (await SERVERS[framework]()).listen(0, '127.0.0.1');
  if (!server.listening) await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address();
  const statuses = [];
  for (let number = 0; number < QUICK; number++) statuses.push(await send(port, `/api/cart/${number}`));
  statuses.push(await send(port, '/api/cart/slow'), await send(port, '/api/orders', '{"number":1}'), await send(port, '/api/fail/1'));
  server.close();
  // Ends of responses are reported after the client has them.
  await new Promise((resolve) => setTimeout(resolve, 50));
  const stats = require('spanprof').stats();
  await require('spanprof').stop();
  console.log(JSON.stringify({ statuses, spans: globalThis.spansOfSdk?.() ?? [], unfinished: stats['tail.undecided'] }));
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
