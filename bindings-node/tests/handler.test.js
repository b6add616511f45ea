'use strict';
// A sample carries the context that is current in JavaScript: in every kind of callback, and in many interleaved requests.

const test = require('node:test');
const assert = require('node:assert/strict');
const { AsyncResource } = require('node:async_hooks');
const { EventEmitter } = require('node:events');
const timers = require('node:timers/promises');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { start, stop, tagWrapper, bind, setLabels } = require('spanprof');
const scope = require('../lib/scope.js');
const { native } = require('../lib/native.js');

/** Asserts that a sample taken here would carry the current context; `where` names the point of the test. */
function assertSame(where) {
  assert.equal(native.currentInHandler(), scope.current(), where);
}

const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-handler-'));
test.after(async () => {
  await stop();
  fs.rmSync(directory, { recursive: true, force: true });
});

test('a scope entered before the start is in samples after it, and not before', () => {
  tagWrapper({ before: 1 }, () => {
    assert.equal(native.currentInHandler(), 0);
    assert.equal(start({ serviceName: 'handler', destinations: [{ type: 'file', directory }] }), true);
    assertSame('after the start');
    assert.notEqual(native.currentInHandler(), 0);
  });
  assertSame('afterwards');
});

test('a sample carries the innermost scope, also after an exception', () => {
  assertSame('outside');
  tagWrapper({ a: 1 }, () => {
    assertSame('inside');
    assert.throws(() => tagWrapper({ b: 1 }, () => { assertSame('nested'); throw new RangeError('mine'); }), RangeError);
    assertSame('after an exception');
  });
  assertSame('afterwards');
  assert.equal(native.currentInHandler(), 0);
});

test('a sample carries the scope of the running callback', async () => {
  await tagWrapper({ a: 1 }, async () => {
    await null;
    assertSame('await');
    await new Promise((resolve) => setTimeout(() => resolve(assertSame('timer')), 1));
    assertSame('await of a timer');
    await new Promise((resolve) => setImmediate(() => resolve(assertSame('immediate'))));
    await new Promise((resolve) => process.nextTick(() => resolve(assertSame('tick'))));
    await new Promise((resolve) => queueMicrotask(() => resolve(assertSame('microtask'))));
    setLabels({ b: 1 });
    assertSame('labels that were set');
    await timers.setImmediate();
    assertSame('labels that were set, later');
  });
  assertSame('afterwards');
});

test('a sample carries the outer scope again after a nested callback of another request', async () => {
  const foreign = tagWrapper({ request: 'other' }, () => new AsyncResource('pool'));
  const bound = tagWrapper({ request: 'bound' }, () => bind(() => assertSame('bound')));
  const emitter = new EventEmitter();
  await tagWrapper({ request: 'own' }, async () => {
    emitter.on('ready', () => assertSame('listener'));
    foreign.runInAsyncScope(() => assertSame('inside the other'));
    assertSame('after the other');
    assert.throws(() => foreign.runInAsyncScope(() => { throw new RangeError('mine'); }), RangeError);
    assertSame('after the other threw');
    bound();
    assertSame('after the bound one');
    await null;
    assertSame('later');
  });
  emitter.emit('ready');
});

test('each of a thousand interleaved chains has its own context', async () => {
  let wrong = 0;
  let checks = 0;
  const chain = async () => {
    const own = scope.current();
    for (let step = 0; step < 10; step++) {
      await (step % 3 === 0 ? timers.setImmediate() : null);
      checks++;
      if (native.currentInHandler() !== own) wrong++;
    }
  };
  await Promise.all(Array.from({ length: 1000 }, (_, n) => tagWrapper({ chain: n }, chain)));
  assert.deepEqual({ wrong, checks }, { wrong: 0, checks: 10_000 });
});

test('where a hook sets the context, it writes an array without a call', () => {
  const contextArray = native.contextArray();
  assert.ok(contextArray instanceof Float64Array);
  assert.equal(contextArray.length, 1);
  // From Node.js 24 on the handler reads the storage, and the array is not written.
  const isSetByHook = Number(process.versions.node.split('.')[0]) < 24;
  tagWrapper({ request: 'set' }, () => assert.equal(contextArray[0], isSetByHook ? scope.current() : 0));
  assert.equal(contextArray[0], 0);
});
