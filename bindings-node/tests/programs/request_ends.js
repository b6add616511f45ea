'use strict';
// Requests of known duration through a middleware under tail-based retention: `directory framework count [sampler position]`.
// Prints the durations inside and outside of the middleware, and the statistics.

const http = require('node:http');
const spanprof = require('spanprof');

const [directory, framework, count, sampler, position] = process.argv.slice(2);
const tracer = sampler === undefined ? undefined : tracerOf(sampler);
const requests = [];

function tracerOf(name) {
  const { NodeTracerProvider, AlwaysOnSampler, AlwaysOffSampler } = require('@opentelemetry/sdk-trace-node');
  const provider = new NodeTracerProvider({
    sampler: name === 'on' ? new AlwaysOnSampler() : new AlwaysOffSampler(),
    spanProcessors: [new spanprof.SpanProcessor()],
  });
  provider.register();
  return provider.getTracer('requests');
}

function burnOfRequest(ms) {
  const begun = performance.now();
  let sum = 0;
  while (performance.now() - begun < ms) for (let turn = 0; turn < 10_000; turn++) sum += Math.sqrt(turn + sum);
  return sum;
}

function work(number) {
  const begun = performance.now();
  const hasFailed = number % 50 === 25;
  spanprof.tagWrapper({ request: number }, () => burnOfRequest(number % 50 === 0 ? 80 : hasFailed ? 40 : 0.5));
  requests[number] = { number, hasFailed, inside: performance.now() - begun };
  if (hasFailed) throw new Error('on purpose');
  return 'ok';
}

/** Runs `next` in a span of the request, as an instrumentation does. */
function inSpan(response, next) {
  if (tracer === undefined) {
    next();
    return;
  }
  tracer.startActiveSpan('request', (span) => {
    response.once('finish', () => {
      if (response.statusCode >= 500) span.setStatus({ code: 2 });
      span.end();
    });
    next();
  });
}
const outer = (listener) => (request, response) => {
  if (position === 'inside') inSpan(response, () => listener(request, response));
  else listener(request, response);
};

async function expressServer() {
  const app = require('express')();
  app.use(spanprof.expressMiddleware());
  if (position === 'outside') app.use((_request, response, next) => inSpan(response, next));
  app.get('/carts/:number', (request, response) => response.send(work(Number(request.params.number))));
  app.use((_error, _request, response, _next) => response.status(500).send('failed'));
  const server = http.createServer(outer(app)).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  return server;
}

async function fastifyServer() {
  const app = require('fastify')({ serverFactory: (listener) => http.createServer(outer(listener)) });
  app.register(spanprof.fastifyPlugin);
  app.register(async (scope) => {
    if (position === 'outside') scope.addHook('onRequest', (_request, reply, next) => inSpan(reply.raw, next));
    scope.get('/carts/:number', async (request) => work(Number(request.params.number)));
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  return app.server;
}

function get(agent, port, path) {
  return new Promise((resolve, reject) => {
    http.get({ agent, port, path }, (response) => response.resume().on('end', () => resolve(response.statusCode))).on('error', reject);
  });
}

(async () => {
  const server = await (framework === 'express' ? expressServer() : fastifyServer());
  spanprof.start({
    serviceName: 'requests', sampleRate: 500, heap: false, retention: 'tail', tailDuration: 0.05,
    destinations: [{ type: 'file', directory }],
  });
  const agent = new http.Agent({ keepAlive: true });
  for (let number = 0; number < Number(count); number++) {
    const begun = performance.now();
    const status = await get(agent, server.address().port, `/carts/${number}`);
    // The response is complete at the client before the server's event.
    await new Promise(setImmediate);
    requests[number].outside = performance.now() - begun;
    if (status !== (requests[number].hasFailed ? 500 : 200)) throw new Error(`status ${status} of ${number}`);
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
  await spanprof.flush();
  const stats = spanprof.stats();
  await spanprof.stop();
  agent.destroy();
  server.close();
  console.log(JSON.stringify({ requests, stats }));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
