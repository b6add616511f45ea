'use strict';
// The set-up of OpenTelemetry's getting-started page, preloaded: a tracer provider and the instrumentations that are installed.

const { createRequire } = require('node:module');
const load = createRequire(process.env.SERVER_MODULES ?? __filename);
const { NodeTracerProvider } = load('@opentelemetry/sdk-trace-node');
const { InMemorySpanExporter, SimpleSpanProcessor } = load('@opentelemetry/sdk-trace-base');
const { registerInstrumentations } = load('@opentelemetry/instrumentation');
const resources = load('@opentelemetry/resources');

const attributes = { 'service.name': 'shop-of-the-sdk', 'service.instance.id': 'instance-1', 'deployment.environment.name': 'staging' };
const resource = resources.resourceFromAttributes ? resources.resourceFromAttributes(attributes) : new resources.Resource(attributes);
const exporter = new InMemorySpanExporter();
const isVersion1 = typeof NodeTracerProvider.prototype.addSpanProcessor === 'function';
const provider = new NodeTracerProvider({ resource, ...(!isVersion1 && { spanProcessors: [new SimpleSpanProcessor(exporter)] }) });
provider.register();
if (isVersion1) provider.addSpanProcessor(new SimpleSpanProcessor(exporter));

const INSTRUMENTATIONS = {
  http: 'Http', express: 'Express', fastify: 'Fastify', koa: 'Koa', 'nestjs-core': 'Nest', graphql: 'GraphQL', undici: 'Undici',
};
const instrumentations = Object.entries(INSTRUMENTATIONS).flatMap(([name, type]) => {
  try {
    return [new (load(`@opentelemetry/instrumentation-${name}`)[`${type}Instrumentation`])()];
  } catch {
    return [];
  }
});
registerInstrumentations({ tracerProvider: provider, instrumentations });

globalThis.spansOfSdk = () => exporter.getFinishedSpans().map((span) => ({
  name: span.name,
  kind: span.kind,
  id: span.spanContext().spanId,
  trace: span.spanContext().traceId,
  path: span.attributes['url.path'] ?? span.attributes['http.target'],
}));
