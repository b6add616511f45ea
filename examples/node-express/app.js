'use strict';
// A small shop on Express under the OpenTelemetry SDK, profiled by spanprof. The profiler needs `start` and the middleware. OTEL_*
// variables select the destination.

const spanprof = require('spanprof');

spanprof.start();

const { propagation, ROOT_CONTEXT, context, trace, defaultTextMapGetter } = require('@opentelemetry/api');
const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
const express = require('express');
const shop = require('./shop.js');

new NodeTracerProvider().register();
const tracer = trace.getTracer('shop');
const app = express();

app.get('/health', (_request, response) => response.json({ status: 'ok' }));
app.get('/profiler', (_request, response) => response.json(spanprof.stats()));

// As an instrumentation does: a span of this request continues the caller's trace.
app.use((request, response, next) => {
  const caller = propagation.extract(ROOT_CONTEXT, request.headers, defaultTextMapGetter);
  context.with(caller, () =>
    tracer.startActiveSpan(request.method, (span) => {
      response.once('close', () => span.end());
      next();
    }));
});
app.use(spanprof.expressMiddleware());

app.get('/cart/:size', (request, response) => {
  const size = Number(request.params.size);
  const customer = size > 10 ? 'returning' : 'new';
  response.json(spanprof.tagWrapper({ customer }, () => ({ total: shop.priceCart(size) })));
});
app.get('/search', async (request, response) => response.json({ best: await shop.search(String(request.query.words)) }));
app.get('/report', (request, response) => response.json({ digest: shop.renderReport(Number(request.query.rows ?? 1000)) }));

// A container sets HOST to 0.0.0.0.
const server = app.listen(Number(process.env.PORT ?? 8000), process.env.HOST ?? '127.0.0.1');

process.once('SIGTERM', () => {
  server.close();
  spanprof.stop().finally(() => process.exit(0));
});
