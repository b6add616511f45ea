'use strict';
// Programs that end in the middle of everything end as they would without us.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { readAll } = require('./pprof_file.js');

function ends(t, way) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-ends-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const program = path.join(__dirname, 'programs', 'ends.js');
  const done = spawnSync(process.execPath, [program, folder, way], { encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.signal, null, done.stderr);
  return { status: done.status, stderr: done.stderr, files: fs.readdirSync(folder).length };
}

test('process.exit keeps its code, and the last window is delivered', (t) => {
  const { status, stderr, files } = ends(t, 'exit');
  assert.deepEqual([status, stderr], [3, '']);
  assert.ok(files > 0);
});

test('an exception that nobody catches ends the process as it would without us', (t) => {
  const { status, stderr } = ends(t, 'throws');
  assert.equal(status, 1);
  assert.match(stderr, /RangeError: mine/);
});

test('workers may be terminated at work, again and again', (t) => {
  assert.deepEqual({ ...ends(t, 'terminate'), files: 0 }, { status: 0, stderr: '', files: 0 });
});

test('the profiler may stop and start again and again while a worker works', (t) => {
  assert.deepEqual({ ...ends(t, 'cycles'), files: 0 }, { status: 0, stderr: '', files: 0 });
});

test('an inspector that fails in the middle of it, or at once, ends nobody', (t) => {
  assert.deepEqual({ ...ends(t, 'failingInspector'), files: 0 }, { status: 0, stderr: '', files: 0 });
  const { status, stderr } = ends(t, 'missingInspector');
  assert.equal(status, 0, stderr);
  assert.match(stderr, /SpanprofWarning: spanprof does nothing in this process: mine/);
});

for (const way of ['exit', 'SIGTERM']) {
  test(`the CPU time of a parent and of forked children that ${way} ends is whole`, (t) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-family-'));
    t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
    const program = path.join(__dirname, 'programs', 'family.js');
    const { status, stdout, stderr } = spawnSync(process.execPath, [program, folder, way], { encoding: 'utf8', timeout: 120_000 });
    assert.equal(status, 0, stderr);
    const burnt = stdout.trim().split('\n').map(Number);
    assert.equal(burnt.length, 3, stdout);
    const share = readAll(folder, 'cpu').reduce((sum, { values }) => sum + values.cpu, 0) / burnt.reduce((sum, own) => sum + own);
    // What ran since the last sample is lost: an interval and a half per thread at most. Threads of V8 work outside `burn` too.
    assert.ok(share > 0.95 && share < 1.2, `${share} of the CPU time`);
  });
}
