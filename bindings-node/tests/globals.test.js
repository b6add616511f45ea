'use strict';
// What tests replace is not read by the package: fake timers, clocks, promises and the console.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const typescript = require('typescript');
const { spawnSync } = require('node:child_process');

const LIB = path.join(__dirname, '../lib');
/** The module that may read them, when it is loaded. */
const CAPTURING = 'primordials.js';
const REPLACED = new Set([
  'setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval', 'clearImmediate', 'queueMicrotask', 'Date', 'performance',
  'Promise', 'console', 'fetch', 'structuredClone', 'AbortSignal', 'requestAnimationFrame',
]);
const REPLACED_OF_PROCESS = new Set(['nextTick', 'hrtime', 'uptime', 'emitWarning', 'stdout', 'stderr']);

/** The replaceable globals that a source reads. */
function replaceable(text) {
  const source = typescript.createSourceFile('a.js', text, typescript.ScriptTarget.Latest, true);
  const names = new Set();
  const declared = new Set();
  (function visit(node) {
    const parent = node.parent;
    if (typescript.isPropertyAccessExpression(node) && node.expression.getText() === 'process' && REPLACED_OF_PROCESS.has(node.name.text)) {
      names.add(`process.${node.name.text}`);
    } else if (typescript.isIdentifier(node) && REPLACED.has(node.text)) {
      const isProperty = (typescript.isPropertyAccessExpression(parent) && parent.name === node && parent.expression.getText() !== 'globalThis')
        || typescript.isPropertyAssignment(parent) || typescript.isMethodDeclaration(parent);
      if (typescript.isBindingElement(parent)) declared.add(node.text);
      else if (!isProperty) names.add(node.text);
    }
    typescript.forEachChild(node, visit);
  })(source);
  return [...names].filter((name) => !declared.has(name));
}

test('only one module reads globals that tests replace', () => {
  const files = fs.readdirSync(LIB).filter((file) => file !== CAPTURING && /\.m?js$/.test(file));
  const found = files.flatMap((file) => replaceable(fs.readFileSync(path.join(LIB, file), 'utf8')).map((name) => `${file}: ${name}`));
  assert.deepEqual(found, []);
  const all = 'new Date(); globalThis.setTimeout(f); process.nextTick(f); a.Date; ({ fetch: 1 }); const { Promise } = x; Promise.all();';
  assert.deepEqual(replaceable(all), ['Date', 'setTimeout', 'process.nextTick']);
});

test('no global is called that a test has replaced, before the package is loaded or later', () => {
  const program = `
    const calls = [];
    const replaced = (name) => function () { if (!new Error().stack.includes('node:internal')) calls.push(name); throw new Error('replaced ' + name); };
    function replace() {
      const timers = require('node:timers'), promises = require('node:timers/promises');
      for (const name of ['setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval', 'clearImmediate']) {
        for (const object of [globalThis, timers, promises]) if (name in object) object[name] = replaced(name);
      }
      for (const name of ['queueMicrotask', 'Date', 'fetch', 'structuredClone']) globalThis[name] = replaced(name);
      Object.defineProperty(globalThis, 'performance', { value: new Proxy({}, { get: (_, name) => replaced('performance.' + String(name)) }) });
      process.nextTick = replaced('nextTick');
      process.hrtime = Object.assign(replaced('hrtime'), { bigint: replaced('hrtime.bigint') });
      for (const name of ['log', 'info', 'warn', 'error']) console[name] = replaced('console.' + name);
    }
    if (process.argv[1] === 'before') replace();
    const spanprof = require(process.argv[2]), pprof = require(process.argv[2] + '/lib/pprof.js');
    const warnings = [];
    process.prependListener('warning', (warning) => warnings.push(warning.message));
    const { Promise: Own } = globalThis;
    globalThis.Promise = replaced('Promise');
    if (process.argv[1] !== 'before') replace();
    (async () => {
      const begun = process.cpuUsage().user;
      spanprof.start({ destinations: [], notAKey: 1 });
      spanprof.tagWrapper({ a: 'b' }, () => { while (process.cpuUsage().user < begun + 200_000); });
      await spanprof.flush(5);
      await pprof.time.profile({ durationMillis: 30 });
      await spanprof.stop();
      process.removeAllListeners('warning');
      require('node:fs').writeSync(1, JSON.stringify({ calls, warnings, samples: spanprof.stats()['samples.taken'] ?? null }));
    })();`;
  for (const when of ['before', 'after']) {
    const done = spawnSync(process.execPath, ['-e', program, '--', when, path.join(__dirname, '..')], { encoding: 'utf8', timeout: 60_000 });
    assert.equal(done.status, 0, done.stderr);
    const { calls, warnings } = JSON.parse(done.stdout);
    assert.deepEqual(calls, [], when);
    assert.ok(warnings.some((text) => text.includes('notAKey')), `${when}: ${warnings}`);
  }
});
