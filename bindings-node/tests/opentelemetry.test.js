'use strict';
// The active span is linked, whether OpenTelemetry is registered before or after `start`. Each order runs in its own process,
// since both register once per process.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const PARTS = `
const assert = require('node:assert/strict');
const api = require('@opentelemetry/api');
const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
const spanprof = require('spanprof');
const scope = require(${JSON.stringify(path.join(__dirname, '..', 'lib', 'scope.js'))});
const { native } = require(${JSON.stringify(path.join(__dirname, '..', 'lib', 'native.js'))});
const install = () => require(${JSON.stringify(path.join(__dirname, '..', 'lib', 'thread.js'))}).linkOpenTelemetry();
const register = () => new NodeTracerProvider().register();
const here = () => native.describeContext(scope.current());
async function look() {
  const tracer = api.trace.getTracer('test');
  await tracer.startActiveSpan('outer', async (outer) => {
    const { traceId, spanId } = outer.spanContext();
    assert.deepEqual([here().traceId, here().spanId, here().localRootSpanId], [traceId, spanId, spanId]);
    await new Promise((resolve) => setTimeout(resolve, 1));
    assert.equal(here().spanId, spanId);
    await spanprof.tagWrapper({ a: 1 }, () => tracer.startActiveSpan('inner', async (inner) => {
      await null;
      assert.deepEqual([here().traceId, here().spanId, here().localRootSpanId], [traceId, inner.spanContext().spanId, spanId]);
      assert.deepEqual(spanprof.getLabels(), { a: '1' });
      assert.equal(api.context.with(api.ROOT_CONTEXT, () => here().spanId), '');
      const bound = api.context.bind(api.trace.setSpan(api.ROOT_CONTEXT, outer), () => here().spanId);
      assert.equal(bound(), spanId);
      assert.equal(here().spanId, inner.spanContext().spanId);
    }));
    assert.throws(() => api.context.with(api.context.active(), () => { throw new RangeError('mine'); }), RangeError);
    assert.equal(here().spanId, spanId);
  });
  assert.equal(here().spanId, '');
  await Promise.all(Array.from({ length: 200 }, () => tracer.startActiveSpan('one', async (span) => {
    for (let step = 0; step < 5; step++) {
      await new Promise(setImmediate);
      assert.equal(here().spanId, span.spanContext().spanId);
    }
  })));
  const remote = api.trace.wrapSpanContext({ traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331', traceFlags: 1, isRemote: true });
  api.context.with(api.trace.setSpan(api.ROOT_CONTEXT, remote), () => {
    assert.equal(here().localRootSpanId, '');
    tracer.startActiveSpan('server', (span) => assert.equal(here().localRootSpanId, span.spanContext().spanId));
  });
}
const complete = () => look().then(() => console.log('complete'), (error) => { console.error(error); process.exit(1); });
`;

function runs(source) {
  const done = spawnSync(process.execPath, ['-e', PARTS + source], { cwd: __dirname, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /complete/);
}

test('the active span is linked when OpenTelemetry was registered before', () => runs('register(); install(); complete();'));

test('the active span is linked when OpenTelemetry is registered later', () => runs('install(); register(); complete();'));

test('the active span is linked when the API is loaded after the profiler', () => {
  const start = PARTS.replace("const api = require('@opentelemetry/api');", '').replace(/.*NodeTracerProvider \}.*\n/, '');
  const source = `${start}
    install();
    globalThis.api = require('@opentelemetry/api');
    const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
    register(); complete();`;
  const done = spawnSync(process.execPath, ['-e', source], { cwd: __dirname, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /complete/);
});

test('a context manager that is removed and registered again is wrapped again', () =>
  runs("install(); register(); api.context.disable(); assert.equal(api.context.active(), api.ROOT_CONTEXT); api.trace.disable(); register(); complete();"));

test('a frozen context manager is registered unchanged', () =>
  runs(`install();
    const contexts = {
      active: () => api.ROOT_CONTEXT, with: (_context, fn, self, ...args) => fn.apply(self, args),
      bind: (_context, target) => target, enable() { return this; }, disable() { return this; },
    };
    Object.defineProperty(contexts, 'with', { writable: false, configurable: false });
    assert.equal(api.context.setGlobalContextManager(contexts), true);
    assert.equal(api.context.with(api.ROOT_CONTEXT, () => 5), 5);
    console.log('complete');`));

test('the span processor is added once, to a copy of the list, and not beside one of the program', () =>
  runs(`
    const { BasicTracerProvider } = require('@opentelemetry/sdk-trace-base');
    spanprof.start({ destinations: [] });
    const own = { onStart() {}, onEnd() {}, async forceFlush() {}, async shutdown() {} };
    const [first, second] = [[own], [new spanprof.SpanProcessor()]].map((spanProcessors) => {
      const provider = new BasicTracerProvider({ spanProcessors });
      for (let turn = 0; turn < 2; turn++) {
        api.trace.setGlobalTracerProvider(provider);
        api.trace.disable();
      }
      return provider._activeSpanProcessor._spanProcessors;
    });
    assert.equal(first.length, 2);
    assert.ok(first[0] === own && first[1] instanceof spanprof.SpanProcessor);
    assert.equal(second.length, 1);
    spanprof.stop().then(() => console.log('complete'));`));

test('of a tracer provider that cannot be extended one warning says what to add', () =>
  runs(`
    class MyProvider { getTracer() { return api.trace.getTracer('none'); } }
    const warnings = [];
    process.on('warning', ({ message }) => warnings.push(message));
    spanprof.start({ destinations: [] });
    const provider = new MyProvider();
    for (let turn = 0; turn < 2; turn++) {
      assert.equal(api.trace.setGlobalTracerProvider(provider), true);
      assert.equal(api.trace.getTracerProvider().getDelegate(), provider);
      api.trace.disable();
    }
    spanprof.stop().then(() => {
      assert.equal(warnings.filter((text) => text.includes('MyProvider') && text.includes('new spanprof.SpanProcessor()')).length, 1);
      console.log('complete');
    });`));
