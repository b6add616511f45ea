'use strict';
// What a sample would carry is what JavaScript holds current: at every place where the program runs, and in each of many
// requests that take turns.

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

/** Whether a sample taken here would carry the current context; `where` names the place when it would not. */
function same(where) {
  assert.equal(native.currentInHandler(), scope.current(), where);
}

const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-handler-'));
test.after(async () => {
  await stop();
  fs.rmSync(directory, { recursive: true, force: true });
});

test('a scope that was entered before the start goes on in samples, and nothing is told before', () => {
  tagWrapper({ before: 1 }, () => {
    assert.equal(native.currentInHandler(), 0);
    assert.equal(start({ serviceName: 'handler', destinations: [{ type: 'file', directory }] }), true);
    same('after the start');
    assert.notEqual(native.currentInHandler(), 0);
  });
  same('afterwards');
});

test('a sample carries the scope that runs, also after an exception', () => {
  same('outside');
  tagWrapper({ a: 1 }, () => {
    same('inside');
    assert.throws(() => tagWrapper({ b: 1 }, () => { same('nested'); throw new RangeError('mine'); }), RangeError);
    same('after an exception');
  });
  same('afterwards');
  assert.equal(native.currentInHandler(), 0);
});

test('a sample carries the scope of the callback that runs', async () => {
  await tagWrapper({ a: 1 }, async () => {
    await null;
    same('await');
    await new Promise((resolve) => setTimeout(() => resolve(same('timer')), 1));
    same('await of a timer');
    await new Promise((resolve) => setImmediate(() => resolve(same('immediate'))));
    await new Promise((resolve) => process.nextTick(() => resolve(same('tick'))));
    await new Promise((resolve) => queueMicrotask(() => resolve(same('microtask'))));
    setLabels({ b: 1 });
    same('labels that were set');
    await timers.setImmediate();
    same('labels that were set, later');
  });
  same('afterwards');
});

test('a sample carries the outer scope again when a callback of another request has run inside it', async () => {
  const foreign = tagWrapper({ request: 'other' }, () => new AsyncResource('pool'));
  const bound = tagWrapper({ request: 'bound' }, () => bind(() => same('bound')));
  const emitter = new EventEmitter();
  await tagWrapper({ request: 'own' }, async () => {
    emitter.on('ready', () => same('listener'));
    foreign.runInAsyncScope(() => same('inside the other'));
    same('after the other');
    assert.throws(() => foreign.runInAsyncScope(() => { throw new RangeError('mine'); }), RangeError);
    same('after the other threw');
    bound();
    same('after the bound one');
    await null;
    same('later');
  });
  emitter.emit('ready');
});

test('of a thousand chains that take turns each carries its own', async () => {
  let wrong = 0;
  let looks = 0;
  const chain = async () => {
    const own = scope.current();
    for (let step = 0; step < 10; step++) {
      await (step % 3 === 0 ? timers.setImmediate() : null);
      looks++;
      if (native.currentInHandler() !== own) wrong++;
    }
  };
  await Promise.all(Array.from({ length: 1000 }, (_, n) => tagWrapper({ chain: n }, chain)));
  assert.deepEqual({ wrong, looks }, { wrong: 0, looks: 10_000 });
});

test('where JavaScript tells the profiler which context runs, it writes a word and calls nothing', () => {
  const word = native.currentWord();
  assert.ok(word instanceof Float64Array);
  assert.equal(word.length, 1);
  // From Node 24 on the storage is read, and the word stays as it is.
  const isTold = Number(process.versions.node.split('.')[0]) < 24;
  tagWrapper({ request: 'told' }, () => assert.equal(word[0], isTold ? scope.current() : 0));
  assert.equal(word[0], 0);
});
