'use strict';
// A small shop on Fastify under the OpenTelemetry SDK, profiled by spanprof. The profiler needs `start` and the plugin. OTEL_*
// variables select the destination.

const spanprof = require('spanprof');

spanprof.start();

const { propagation, ROOT_CONTEXT, context, trace, defaultTextMapGetter } = require('@opentelemetry/api');
const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
const fastify = require('fastify');
const shop = require('./shop.js');

new NodeTracerProvider().register();
const tracer = trace.getTracer('shop');
const app = fastify();

// As an instrumentation does: a span of this request continues the caller's trace.
app.addHook('onRequest', (request, reply, done) => {
  const caller = propagation.extract(ROOT_CONTEXT, request.headers, defaultTextMapGetter);
  context.with(caller, () =>
    tracer.startActiveSpan(request.method, (span) => {
      reply.raw.once('close', () => span.end());
      done();
    }));
});
app.register(spanprof.fastifyPlugin);

app.get('/health', async () => ({ status: 'ok' }));
app.get('/profiler', async () => spanprof.stats());
app.get('/cart/:size', async (request) => {
  const size = Number(request.params.size);
  const customer = size > 10 ? 'returning' : 'new';
  return spanprof.tagWrapper({ customer }, () => ({ total: shop.priceCart(size) }));
});
app.get('/search', async (request) => ({ best: await shop.search(String(request.query.words)) }));
app.get('/report', async (request) => ({ digest: shop.renderReport(Number(request.query.rows ?? 1000)) }));

app.listen({ port: Number(process.env.PORT ?? 8000), host: '127.0.0.1' });

process.once('SIGTERM', () => {
  app.close().then(() => spanprof.stop()).finally(() => process.exit(0));
});
