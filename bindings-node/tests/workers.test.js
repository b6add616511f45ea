'use strict';
// Worker threads while profiling: they start as they would without us, know the profiler, and leave no trace of it.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const WORKERS = JSON.stringify(path.join(__dirname, '..', 'lib', 'workers.js'));
const IN_WORKER = `
  const { parentPort } = require('node:worker_threads');
  const { tagWrapper, getLabels } = require('spanprof');
  tagWrapper({ worker: 1 }, async () => {
    await null;
    parentPort.postMessage({ labels: getLabels(), words: process.execArgv, loaded: Object.keys(require.cache).some((name) => name.endsWith('worker.js')) });
  });`;

function runs(source, ...flags) {
  const program = `require(${WORKERS}).install();
    const { Worker } = require('node:worker_threads');
    const assert = require('node:assert/strict');
    ${source}`;
  const done = spawnSync(process.execPath, [...flags, '-e', program], { cwd: __dirname, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /whole/);
}

test('a worker loads the profiler first, keeps its labels and shows no options of ours', () =>
  runs(`new Worker(${JSON.stringify(IN_WORKER)}, { eval: true }).on('message', ({ labels, words, loaded }) => {
    assert.deepEqual(labels, { worker: '1' });
    assert.equal(loaded, true);
    assert.equal(words.includes('--require'), false);
    console.log('whole');
  });`));

test('options that a worker inherits but refuses when told do not stop it', () =>
  runs(`assert.equal(Worker.name, 'Worker');
    new Worker('require("node:worker_threads").parentPort.postMessage(1)', { eval: true }).on('message', () => console.log('whole'));`,
    '--max-old-space-size=256', '--expose-gc'));

test('a worker with options of its own is left with them, and a wrong call fails as before', () =>
  runs(`assert.throws(() => new Worker(7), { code: 'ERR_INVALID_ARG_TYPE' });
    assert.throws(() => new Worker('1', { eval: true, execArgv: ['--no-such-option'] }), { code: 'ERR_WORKER_INVALID_EXEC_ARGV' });
    new Worker('require("node:worker_threads").parentPort.postMessage(process.execArgv)', { eval: true, execArgv: ['--no-warnings'] })
      .on('message', (words) => { assert.deepEqual(words, ['--no-warnings']); console.log('whole'); });`));

test('a worker may be ended at once, again and again', () =>
  runs(`(async () => {
    for (let round = 0; round < 10; round++) await new Worker('setInterval(() => {}, 1)', { eval: true }).terminate();
    console.log('whole');
  })();`));
