'use strict';
// The active span links itself, whether OpenTelemetry is registered before or after `start`. Each order in a process of its
// own, since both register once per process.

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
const follow = () => require(${JSON.stringify(path.join(__dirname, '..', 'lib', 'opentelemetry.js'))}).install();
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
const whole = () => look().then(() => console.log('whole'), (error) => { console.error(error); process.exit(1); });
`;

function runs(source) {
  const done = spawnSync(process.execPath, ['-e', PARTS + source], { cwd: __dirname, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /whole/);
}

test('the active span links itself when OpenTelemetry was registered first', () => runs('register(); follow(); whole();'));

test('the active span links itself when OpenTelemetry is registered later', () => runs('follow(); register(); whole();'));

test('the active span links itself when the API is loaded later than the profiler follows', () => {
  const start = PARTS.replace("const api = require('@opentelemetry/api');", '').replace(/.*NodeTracerProvider \}.*\n/, '');
  const source = `${start}
    follow();
    globalThis.api = require('@opentelemetry/api');
    const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
    register(); whole();`;
  const done = spawnSync(process.execPath, ['-e', source], { cwd: __dirname, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /whole/);
});

test('a context manager that is taken away and registered again is followed again', () =>
  runs("follow(); register(); api.context.disable(); assert.equal(api.context.active(), api.ROOT_CONTEXT); api.trace.disable(); register(); whole();"));

test('a context manager that lets nobody touch it is registered as it would be without us', () =>
  runs(`follow();
    const contexts = {
      active: () => api.ROOT_CONTEXT, with: (_context, fn, self, ...args) => fn.apply(self, args),
      bind: (_context, target) => target, enable() { return this; }, disable() { return this; },
    };
    Object.defineProperty(contexts, 'with', { writable: false, configurable: false });
    assert.equal(api.context.setGlobalContextManager(contexts), true);
    assert.equal(api.context.with(api.ROOT_CONTEXT, () => 5), 5);
    console.log('whole');`));
