'use strict';
// Every run, however short, reports its outcome at exit: a warning when nothing was delivered, otherwise a line on standard error.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { temporaryDirectory } = require('./run_node.js');

const BURN = 'function burn() { const until = Date.now() + 200; while (Date.now() < until); } burn();';

function run(t, program, variables, ...flags) {
  const folder = temporaryDirectory(t);
  const file = path.join(folder, 'program.js');
  const spanprof = JSON.stringify(path.join(__dirname, '..'));
  fs.writeFileSync(file, `const spanprof = require(${spanprof}); ${program}`);
  const env = { ...process.env, ...variables };
  const done = spawnSync(process.execPath, [...flags, file], { cwd: folder, encoding: 'utf8', env, timeout: 60_000 });
  return { ...done, folder };
}

const DEAD = { SPANPROF_ENDPOINT: 'http://127.0.0.1:1' };
const NOTHING_DELIVERED = /SpanprofWarning: spanprof: stopped after .* nothing delivered to http:\/\/127\.0\.0\.1:1.*: cannot connect/;

test('a short program without a receiver warns at exit, however it exits', (t) => {
  for (const [end, status] of [['', 0], ['process.exit(3);', 3], ["throw new RangeError('mine');", 1]]) {
    const { status: exitCode, stderr } = run(t, `spanprof.start(); ${BURN} ${end}`, DEAD);
    assert.equal(exitCode, status, stderr);
    assert.match(stderr, NOTHING_DELIVERED);
    assert.equal(stderr.split('SpanprofWarning').length, 2, stderr);
  }
});

test('the warning goes to the process warnings or the program\'s logger', (t) => {
  assert.equal(run(t, `spanprof.start(); ${BURN}`, DEAD, '--no-warnings').stderr, '');
  const listener = "process.on('warning', (warning) => console.log(`heard ${warning.message}`));";
  assert.match(run(t, `${listener} spanprof.start(); ${BURN}`, DEAD).stdout, /heard spanprof: stopped after/);
  const logger = 'spanprof.setLogger({ warn: (line) => console.log(`logged ${line}`) });';
  const { stdout, stderr } = run(t, `${logger} spanprof.start(); ${BURN}`, DEAD);
  assert.match(stdout, /logged spanprof: stopped after/);
  assert.equal(stderr, '');
});

test('a warning of start survives an immediate exit', (t) => {
  const { stderr } = run(t, "spanprof.start({ servicename: 'x', destinations: [] }); process.exit(0);", {});
  assert.match(stderr, /unknown key `servicename`/);
});

test('output writes a flame graph at exit, without a receiver, and one line names it', (t) => {
  const { stderr, folder } = run(t, `spanprof.start(); ${BURN}`, { SPANPROF_OUTPUT: 'flame.html' });
  assert.match(stderr, /^spanprof: stopped after [^\n]*flame\.html[^\n]*\n$/);
  assert.match(fs.readFileSync(path.join(folder, 'flame.html'), 'utf8'), /burn/);
});

test('the outcome goes to the logger of the program, and an empty logger discards it', (t) => {
  const output = { SPANPROF_OUTPUT: 'flame.html' };
  const logger = 'spanprof.setLogger({ info: (line) => console.log(`logged ${line}`) });';
  const { stdout, stderr } = run(t, `${logger} spanprof.start(); ${BURN}`, output);
  assert.match(stdout, /logged spanprof: stopped after/);
  assert.equal(stderr, '');
  assert.equal(run(t, `spanprof.setLogger({}); spanprof.start(); ${BURN}`, output).stderr, '');
});

test('a closed standard error changes neither the program nor its exit code', (t) => {
  const { status, folder } = run(t, `require('node:fs').closeSync(2); spanprof.start(); ${BURN} process.exitCode = 3;`, { SPANPROF_OUTPUT: 'flame.html' });
  assert.equal(status, 3);
  assert.match(fs.readFileSync(path.join(folder, 'flame.html'), 'utf8'), /burn/);
});
