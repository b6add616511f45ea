'use strict';
// Labels follow the logical request through every kind of asynchronous work, and end with their scope.

const test = require('node:test');
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const { EventEmitter, once } = require('node:events');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');
const { temporaryDirectory } = require('./run_node.js');

const { tagWrapper, getLabels } = spanprof;

test('a scope passes arguments to its function and returns its result', async () => {
  assert.equal(tagWrapper({ a: 1 }, (x, y) => x + y, 1, 2), 3);
  assert.equal(await tagWrapper({ a: 1 }, async (x) => x, 'later'), 'later');
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

test('a bound function runs under the labels of its binding, with its own this and arguments', () => {
  const bound = tagWrapper({ a: 1 }, () =>
    spanprof.bind(function named(x, _y) { return [this.own, x, getLabels()]; }));
  assert.equal(bound.length, 2);
  assert.equal(bound.name, 'named');
  tagWrapper({ b: 2 }, () => assert.deepEqual(bound.call({ own: 7 }, 3), [7, 3, { a: '1' }]));
});

test('a bound function that a timer or an event calls has the labels of its binding', async () => {
  const emitter = new EventEmitter();
  const seen = [];
  tagWrapper({ a: 1 }, () => emitter.on('ready', spanprof.bind(() => seen.push(getLabels()))));
  await tagWrapper({ b: 2 }, async () => {
    emitter.emit('ready');
    await timers.setTimeout(1);
    emitter.emit('ready');
    assert.deepEqual(getLabels(), { b: '2' });
  });
  assert.deepEqual(seen, [{ a: '1' }, { a: '1' }]);
  const outside = spanprof.bind(getLabels);
  assert.deepEqual(tagWrapper({ a: 1 }, outside), {});
});

test('the body of a bound generator function has the labels of the code that resumes it', async () => {
  const steps = tagWrapper({ a: 1 }, () => spanprof.bind(function* generate() { yield getLabels(); yield getLabels(); }));
  const generator = tagWrapper({ b: 2 }, steps);
  assert.deepEqual(tagWrapper({ c: 3 }, () => generator.next().value), { c: '3' });
  assert.deepEqual(generator.next().value, {});
  // To carry labels into the body, bind the function that resumes it.
  const next = tagWrapper({ a: 1 }, () => spanprof.bind((it) => it.next().value));
  assert.deepEqual(tagWrapper({ c: 3 }, () => next(steps())), { a: '1' });
  const later = tagWrapper({ a: 1 }, () => spanprof.bind(async function* generate() { await null; yield getLabels(); }))();
  assert.deepEqual(await tagWrapper({ c: 3 }, async () => (await later.next()).value), { c: '3' });
});

test('prepared labels are immutable, readable, and never throw', () => {
  const labels = { a: 1, __proto__: null };
  const prepared = spanprof.prepareLabels(labels);
  labels.a = 2;
  assert.deepEqual({ ...prepared }, { a: '1' });
  assert.throws(() => { prepared.a = '3'; }, TypeError);
  tagWrapper(prepared, () => assert.deepEqual(getLabels(), { a: '1' }));
  for (const wrong of [null, undefined, 7, 'text', { a() {} }]) {
    assert.deepEqual(tagWrapper(spanprof.prepareLabels(wrong), getLabels), {});
  }
});

test('isRunning is true from start to stop only', (t) => {
  const folder = temporaryDirectory(t);
  const source = `
    const spanprof = require('spanprof');
    const options = { serviceName: 'running', fileDirectory: process.argv[1] };
    const states = [spanprof.isRunning()];
    process.env.SPANPROF_DISABLED = '1';
    states.push(spanprof.start(options), spanprof.isRunning());
    delete process.env.SPANPROF_DISABLED;
    states.push(spanprof.start(options), spanprof.isRunning());
    spanprof.stop().then((stopped) => console.log(JSON.stringify([...states, stopped, spanprof.isRunning()])));`;
  const done = spawnSync(process.execPath, ['-e', source, folder], { cwd: __dirname, encoding: 'utf8', timeout: 60_000 });
  assert.deepEqual(JSON.parse(done.stdout), [false, false, false, true, true, true, false], done.stderr);
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
  const labels = tagWrapper(JSON.parse('{"__proto__": "x"}'), getLabels);
  assert.deepEqual(Object.entries(labels), [['__proto__', 'x']]);
});
