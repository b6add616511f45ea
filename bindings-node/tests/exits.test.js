'use strict';
// Programs that exit in the middle of work exit as without the profiler.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const { spawnSync } = require('node:child_process');
const { program, temporaryDirectory } = require('./run_node.js');

function run(t, way) {
  const folder = temporaryDirectory(t);
  const done = spawnSync(process.execPath, [program('exits.js'), folder, way], { encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.signal, null, done.stderr);
  const stderr = done.stderr.replace(/^spanprof: stopped after [^\n]*\n/gm, '');
  return { status: done.status, stderr, files: fs.readdirSync(folder).length };
}

test('process.exit keeps its code, and the last window is delivered', (t) => {
  const { status, stderr, files } = run(t, 'exit');
  assert.deepEqual([status, stderr], [3, '']);
  assert.ok(files > 0);
});

for (const way of ['throws', 'rejects']) {
  test(`a program that ${way} ends as without the profiler`, (t) => {
    const { status, stderr } = run(t, way);
    assert.equal(status, 1);
    assert.match(stderr, /RangeError: mine/);
  });
}

for (const way of ['exitWhileStopping', 'exitWhileFlushing']) {
  test(`process.exit keeps its code: ${way}`, (t) => {
    assert.equal(run(t, way).status, 4);
  });
}

test('workers can be terminated at work repeatedly', (t) => {
  assert.deepEqual({ ...run(t, 'terminate'), files: 0 }, { status: 0, stderr: '', files: 0 });
});

test('the profiler can stop and start repeatedly while a worker works', (t) => {
  assert.deepEqual({ ...run(t, 'cycles'), files: 0 }, { status: 0, stderr: '', files: 0 });
});
