'use strict';
// What the package replaces in the process: every difference of the built-in modules and globals is in one table, and each
// replacement looks like its original.

const test = require('node:test');
const assert = require('node:assert/strict');
const { builtinModules } = require('node:module');
const { inspect, promisify } = require('node:util');
const path = require('node:path');

const PACKAGE = path.join(__dirname, '..');
/** A context manager as of OpenTelemetry: its method is of its class. */
class ContextManager {
  active() { return { getValue: () => undefined }; }
  with(context, fn, thisArg, ...args) { return fn.call(thisArg, ...args); }
}
Object.assign(ContextManager.prototype.with, { [promisify.custom]: () => 'custom', own: 1 });
const registry = { version: '1.9.0', context: new ContextManager() };
globalThis[Symbol.for('opentelemetry.js.api.1')] = registry;

/** The replaced functions, by their path. */
const REPLACED = {
  'worker_threads.Worker': () => require('node:worker_threads').Worker,
  'opentelemetry.context.with': () => registry.context.with,
};
/** Properties that change beside them. */
const ADDED = ['globalThis.Symbol(spanprof.copy)', 'globalThis.Symbol(spanprof.originals)', 'opentelemetry.context.with', 'worker_threads.Worker.prototype.constructor'];

/** Every property that can be reached in a few steps, with its value and attributes. */
function everything() {
  const found = new Map();
  const seen = new Set();
  (function visit(object, name, depth) {
    if ((typeof object !== 'object' && typeof object !== 'function') || object === null || seen.has(object) || depth > 3) return;
    seen.add(object);
    for (const key of Reflect.ownKeys(object)) {
      const property = Object.getOwnPropertyDescriptor(object, key);
      const full = `${name}.${String(key)}`;
      found.set(full, property);
      if ('value' in property && typeof property.value === 'function') visit(property.value, full, depth + 1);
      else if (key === 'prototype' || depth === 0 && key !== 'cache') visit(property.value, full, depth + 1);
    }
  })({ process, globalThis, Error, Promise }, '', -1);
  for (const name of builtinModules.filter((name) => !/^(_|node:)/.test(name) && !['sys', 'punycode', 'wasi'].includes(name))) {
    const roots = require(`node:${name}`);
    for (const key of Reflect.ownKeys(roots)) found.set(`${name}.${String(key)}`, Object.getOwnPropertyDescriptor(roots, key));
  }
  found.set('worker_threads.Worker.prototype.constructor', Object.getOwnPropertyDescriptor(require('node:worker_threads').Worker.prototype, 'constructor'));
  found.set('opentelemetry.context.with', Object.getOwnPropertyDescriptor(registry.context, 'with'));
  return found;
}

/** Node.js 26 shows that a value is a proxy. */
const PROXY = /^Proxy\((.*)\)$/s;

/** The outside of a function: what a program can read of it. */
function outside(read) {
  const value = read();
  const properties = Object.getOwnPropertyDescriptors(value);
  return {
    name: value.name, length: value.length, type: typeof value, inspected: inspect(value).replace(PROXY, '$1'),
    keys: Reflect.ownKeys(value).filter((key) => key !== 'prototype'),
    attributes: Reflect.ownKeys(properties).filter((key) => key !== 'prototype').map((key) => [key, { ...properties[key] }]),
    parent: Object.getPrototypeOf(value), custom: value[promisify.custom],
  };
}

const quiet = process.emitWarning;
process.emitWarning = () => {};
const before = everything();
const outsides = Object.entries(REPLACED).map(([name, read]) => [name, outside(read), read()]);
const inspected = inspect(registry.context);
const { Worker } = require('node:worker_threads');
const spanprof = require(PACKAGE);
spanprof.start({ destinations: [] });
spanprof.tagWrapper({ a: 'b' }, () => {});
const after = everything();
process.emitWarning = quiet;
test.after(() => spanprof.stop());

test('the package replaces what is in the table, and nothing else', () => {
  const changed = [...new Set([...before.keys(), ...after.keys()])].filter((name) => {
    const [old, now] = [before.get(name), after.get(name)];
    return old === undefined || now === undefined || !Object.is(old.value, now.value) || old.get !== now.get;
  });
  const ignored = /^\.?process\.(_events|_eventsCount|memoryUsage|moduleLoadList|.*[cC]ache)|diagnostics_channel|^\.globalThis\.(process|crypto)/;
  const expected = [...ADDED, ...Object.keys(REPLACED)];
  assert.deepEqual(changed.filter((name) => !ignored.test(name)).map((name) => name.replace(/^\./, '')).filter((name) => !expected.includes(name)), []);
});

test('a replacement has the outside of its original', () => {
  for (const [name, original, value] of outsides) {
    const read = REPLACED[name];
    assert.notEqual(read(), value, `${name} is replaced`);
    assert.deepEqual(outside(read), original, name);
  }
  assert.equal(inspect(registry.context), inspected);
  for (const [name, property] of before) {
    const now = after.get(name);
    if (now !== undefined && property !== undefined && name !== 'opentelemetry.context.with') assert.equal(now.enumerable, property.enumerable, name);
  }
});

test('instances and subclasses are of the replacement and of the original', async () => {
  const replaced = require('node:worker_threads').Worker;
  class Own extends replaced {}
  const workers = [new replaced('', { eval: true }), new Own('', { eval: true }), new Worker('', { eval: true })];
  for (const worker of workers) assert.ok(worker instanceof replaced && worker instanceof Worker);
  assert.equal(workers[0].constructor, replaced);
  assert.ok(workers[1] instanceof Own && workers[1].constructor === Own);
  assert.equal(replaced.prototype, Worker.prototype);
  assert.equal((await import('node:worker_threads')).Worker, replaced);
  await Promise.all(workers.map((worker) => worker.terminate()));
});

test('nothing is replaced twice, also by a second load of the package', async () => {
  const worker = REPLACED['worker_threads.Worker']();
  const frames = () => registry.context.with({ getValue: () => undefined }, () => new Error().stack).split('opentelemetry.js').length - 1;
  assert.equal(frames(), 1);
  for (const file of Object.keys(require.cache)) if (file.startsWith(path.join(PACKAGE, 'lib'))) delete require.cache[file];
  const again = require(PACKAGE);
  await spanprof.stop();
  assert.equal(again.start({ destinations: [] }), true);
  await again.stop();
  assert.equal(REPLACED['worker_threads.Worker'](), worker);
  assert.equal(frames(), 1);
});
