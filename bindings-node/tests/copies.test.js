'use strict';
// Two copies of the package in one process: the first one profiles, the second one uses it, warns once and never throws.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { temporaryDirectory } = require('./run_node.js');

const PACKAGE = path.join(__dirname, '..');

/** A directory with a program and a copy of the package, and beside it a directory with another copy for `--require`. */
function installed(t, change = () => {}) {
  const folder = temporaryDirectory(t);
  for (const directory of ['app', 'agent']) {
    const copy = path.join(folder, directory, 'node_modules', 'spanprof');
    for (const part of ['lib', 'package.json', 'prebuilds']) fs.cpSync(path.join(PACKAGE, part), path.join(copy, part), { recursive: true });
    change(copy, directory);
  }
  return (source, ...flags) => {
    fs.writeFileSync(path.join(folder, 'app', 'program.js'), source);
    const env = { PATH: process.env.PATH, SPANPROF_FILE_DIRECTORY: path.join(folder, 'out'), SPANPROF_STOP_TIMEOUT: '60' };
    const args = flags.map((flag) => flag.replace('AGENT', path.join(folder, 'agent', 'node_modules', 'spanprof')));
    return spawnSync(process.execPath, [...args, 'program.js'], { cwd: path.join(folder, 'app'), env, encoding: 'utf8', timeout: 180_000 });
  };
}

const PROGRAM = `
  const assert = require('node:assert/strict');
  const { Worker } = require('node:worker_threads');
  const spanprof = require('spanprof');
  const Pyroscope = require('spanprof/pyroscope');
  assert.equal(spanprof.start({ serviceName: 'own' }), true);
  assert.equal(Pyroscope.start(), true);
  const pprof = require('spanprof/pprof');
  const profiled = pprof.time.start();
  for (const end = Date.now() + 100; Date.now() < end;);
  assert.ok(profiled().sample.length > 0);
  assert.equal(spanprof.stats().state, 'running');
  assert.deepEqual(spanprof.tagWrapper({ a: 1 }, spanprof.getLabels), { a: '1' });
  assert.throws(() => spanprof.update({ sampleRate: -1 }), spanprof.SpanprofError);
  const inWorker = 'const { tagWrapper, getLabels } = require("spanprof"); require("node:worker_threads").parentPort.postMessage(tagWrapper({ b: 2 }, getLabels));';
  new Worker(inWorker, { eval: true }).once('message', async (labels) => {
    assert.deepEqual(labels, { b: '2' });
    assert.equal(await spanprof.stop(), true);
    console.log('complete');
  });`;

test('the application\'s own copy uses the preloaded one, with one warning', (t) => {
  const run = installed(t);
  for (const flags of [['--require', 'AGENT/lib/register.js'], ['--import', 'AGENT/lib/register.js']]) {
    const done = run(PROGRAM, ...flags);
    assert.equal(done.status, 0, done.stderr);
    assert.match(done.stdout, /complete/);
    assert.equal(done.stderr.match(/\(node:\d+\)/g)?.length, 1, done.stderr);
    assert.match(done.stderr, /two copies of spanprof are loaded/);
  }
});

test('a copy preloaded after another one does not start again', (t) => {
  const done = installed(t)('console.log("complete");', '--require', 'spanprof/register', '--require', 'AGENT/lib/register.js');
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /complete/);
  assert.equal(done.stderr.match(/\(node:\d+\)/g)?.length, 1, done.stderr);
});

test('a copy that cannot load its native module yields to one that can', (t) => {
  const run = installed(t, (copy, directory) => { if (directory === 'agent') fs.rmSync(path.join(copy, 'prebuilds'), { recursive: true }); });
  const done = run(PROGRAM, '--require', 'AGENT/lib/register.js');
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /complete/);
});

test('a copy hidden from the other one declines to start', (t) => {
  const hide = "Object.defineProperty(globalThis, Symbol.for('spanprof.copy'), { value: undefined });";
  const source = `${hide}
    const spanprof = require('spanprof');
    console.log(JSON.stringify([spanprof.start({ serviceName: 'own' }), spanprof.tagWrapper({ a: 1 }, () => 2)]));`;
  const done = installed(t)(source, '--require', 'AGENT/lib/register.js');
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /\[false,2\]/);
  assert.equal(done.stderr.match(/\(node:\d+\)/g)?.length, 1, done.stderr);
  assert.match(done.stderr, /another copy of spanprof/);
});
