'use strict';
// Every run, however short, reports its outcome at exit: a warning when nothing arrived, nothing on standard error otherwise.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const BURN = 'function burn() { const until = Date.now() + 200; while (Date.now() < until); } burn();';

function ran(t, program, variables, ...flags) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-outcome-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const file = path.join(folder, 'program.js');
  const spanprof = JSON.stringify(path.join(__dirname, '..'));
  fs.writeFileSync(file, `const spanprof = require(${spanprof}); ${program}`);
  const env = { ...process.env, ...variables };
  const done = spawnSync(process.execPath, [...flags, file], { cwd: folder, encoding: 'utf8', env, timeout: 60_000 });
  return { ...done, folder };
}

const DEAD = { SPANPROF_ENDPOINT: 'http://127.0.0.1:1' };
const NOTHING = /SpanprofWarning: spanprof: stopped after .* nothing delivered to http:\/\/127\.0\.0\.1:1.*: cannot connect/;

test('a short program without a receiver warns at its end, however it ends', (t) => {
  for (const [end, status] of [['', 0], ['process.exit(3);', 3], ["throw new RangeError('mine');", 1]]) {
    const { status: was, stderr } = ran(t, `spanprof.start(); ${BURN} ${end}`, DEAD);
    assert.equal(was, status, stderr);
    assert.match(stderr, NOTHING);
    assert.equal(stderr.split('SpanprofWarning').length, 2, stderr);
  }
});

test('the warning goes where warnings of the process go', (t) => {
  assert.equal(ran(t, `spanprof.start(); ${BURN}`, DEAD, '--no-warnings').stderr, '');
  const listener = "process.on('warning', (warning) => console.log(`heard ${warning.message}`));";
  assert.match(ran(t, `${listener} spanprof.start(); ${BURN}`, DEAD).stdout, /heard spanprof: stopped after/);
  const logger = 'spanprof.setLogger({ warn: (line) => console.log(`logged ${line}`) });';
  const { stdout, stderr } = ran(t, `${logger} spanprof.start(); ${BURN}`, DEAD);
  assert.match(stdout, /logged spanprof: stopped after/);
  assert.equal(stderr, '');
});

test('a warning of start survives an immediate exit', (t) => {
  const { stderr } = ran(t, "spanprof.start({ servicename: 'x', destinations: [] }); process.exit(0);", {});
  assert.match(stderr, /unknown key `servicename`/);
});

test('output writes a flame graph at exit, without a receiver and without a word', (t) => {
  const { stderr, folder } = ran(t, `spanprof.start(); ${BURN}`, { SPANPROF_OUTPUT: 'flame.html' });
  assert.equal(stderr, '');
  assert.match(fs.readFileSync(path.join(folder, 'flame.html'), 'utf8'), /burn/);
});
