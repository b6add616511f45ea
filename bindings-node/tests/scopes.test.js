'use strict';
// Labels follow the logical request through every kind of asynchronous work, and end with their scope.

const test = require('node:test');
const assert = require('node:assert/strict');
const { EventEmitter, once } = require('node:events');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const { tagWrapper, getLabels } = spanprof;
const TRACE = '0af7651916cd43dd8448eb211c80319c';

test('a scope passes arguments to its function and returns its result', async () => {
  assert.equal(tagWrapper({ a: 1 }, (x, y) => x + y, 1, 2), 3);
  assert.equal(await tagWrapper({ a: 1 }, async (x) => x, 'later'), 'later');
});

test('labels nest, the inner value wins, and the outer ones are restored', () => {
  tagWrapper({ a: 1, b: 1 }, () => {
    tagWrapper({ b: 2 }, () => assert.deepEqual(getLabels(), { a: '1', b: '2' }));
    assert.deepEqual(getLabels(), { a: '1', b: '1' });
  });
  assert.deepEqual(getLabels(), {});
});

test('labels end with an exception and with a rejection', async () => {
  assert.throws(() => tagWrapper({ a: 1 }, () => { throw new RangeError('mine'); }), RangeError);
  assert.deepEqual(getLabels(), {});
  const failing = tagWrapper({ a: 1 }, async () => {
    await timers.setImmediate();
    assert.deepEqual(getLabels(), { a: '1' });
    throw new RangeError('mine');
  });
  assert.deepEqual(getLabels(), {});
  await assert.rejects(failing, RangeError);
  assert.deepEqual(getLabels(), {});
});

test('labels follow promises, timers, microtasks, ticks, streams and events created inside', async () => {
  const seen = await tagWrapper({ request: 'a' }, async () => {
    const labels = [];
    const record = () => labels.push(getLabels().request);
    await null;
    record();
    await timers.setTimeout(1);
    record();
    await new Promise((resolve) => queueMicrotask(() => resolve(record())));
    await new Promise((resolve) => process.nextTick(() => resolve(record())));
    await new Promise((resolve) => setImmediate(() => resolve(record())));
    await Promise.all([1, 2].map(async () => { await timers.setImmediate(); record(); }));
    const emitter = new EventEmitter();
    setTimeout(() => emitter.emit('ready'), 1);
    await once(emitter, 'ready');
    record();
    await pipeline(Readable.from(['x', 'y']), async function* (source) {
      for await (const part of source) { record(); yield part; }
    }, async (source) => { for await (const _ of source) record(); });
    return labels;
  });
  assert.ok(seen.length >= 10);
  assert.deepEqual([...new Set(seen)], ['a']);
});

test('a thousand interleaved chains each keep their own labels', async () => {
  let wrong = 0;
  let checks = 0;
  const chain = async (name) => {
    for (let step = 0; step < 10; step++) {
      if (step % 3 === 0) await timers.setImmediate();
      else await null;
      checks++;
      if (getLabels().chain !== name) wrong++;
    }
  };
  await Promise.all(Array.from({ length: 1000 }, (_, n) => tagWrapper({ chain: n }, chain, String(n))));
  assert.deepEqual({ wrong, checks }, { wrong: 0, checks: 10_000 });
});

test('a bound function runs under the labels of its binding, with its own this and arguments', () => {
  const bound = tagWrapper({ a: 1 }, () =>
    spanprof.bind(function named(x, _y) { return [this.own, x, getLabels()]; }));
  assert.equal(bound.length, 2);
  assert.equal(bound.name, 'named');
  tagWrapper({ b: 2 }, () => assert.deepEqual(bound.call({ own: 7 }, 3), [7, 3, { a: '1' }]));
});

test('setLabels replaces the labels in the current execution and the work that it starts only', async () => {
  await tagWrapper({ a: 1 }, async () => {
    spanprof.setLabels({ b: 2 });
    assert.deepEqual(getLabels(), { b: '2' });
    await timers.setImmediate();
    assert.deepEqual(getLabels(), { b: '2' });
    spanprof.setLabels({});
    assert.deepEqual(getLabels(), {});
  });
  assert.deepEqual(getLabels(), {});
});

test('labels that throw never affect the program', () => {
  const throwing = { toString() { throw new Error('theirs'); } };
  const proxy = new Proxy({}, { ownKeys() { throw new Error('theirs'); } });
  for (const labels of [null, undefined, 7, 'text', [], proxy, { a: throwing }, { a: undefined, b: null }, { [Symbol('s')]: 1 }]) {
    assert.equal(tagWrapper(labels, () => Object.keys(getLabels()).length), 0);
  }
  assert.deepEqual(tagWrapper({ a: throwing, b: Symbol('s'), c: 1n }, getLabels), { b: 'Symbol(s)', c: '1' });
  assert.deepEqual(tagWrapper(new Map([['k', 'v']]), getLabels), { k: 'v' });
  const own = tagWrapper(JSON.parse('{"__proto__": "x"}'), getLabels);
  assert.deepEqual(Object.entries(own), [['__proto__', 'x']]);
});

test('trace_id and span_id are the link, not labels', () => {
  assert.deepEqual(tagWrapper({ trace_id: TRACE, span_id: 'b7ad6b7169203331', a: 1 }, getLabels), { a: '1' });
  assert.deepEqual(tagWrapper({ trace_id: 'not hex' }, getLabels), { trace_id: 'not hex' });
});
