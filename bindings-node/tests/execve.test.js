'use strict';
// Programs that call `execve` while sampled: the new program ends by its own exit code.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const PROGRAM = path.join(__dirname, 'programs', 'execve.js');
const missing = typeof process.execve === 'function' ? false : 'process.execve came with Node.js 22.15 and 23.11';

function run(way) {
  const { status, signal, stderr } = spawnSync(process.execPath, ['--no-warnings', PROGRAM, way], { encoding: 'utf8', timeout: 60_000 });
  return { end: signal ?? status, stderr };
}

test('a program that calls execve is never ended by a sample', { skip: missing }, () => {
  for (let turn = 0; turn < 25; turn++) assert.deepEqual(run('execve'), { end: 7, stderr: '' });
});

test('a program whose execve fails is sampled further', { skip: missing }, () => {
  const { end, stderr } = run('refused');
  assert.equal(end, 0, stderr);
});
