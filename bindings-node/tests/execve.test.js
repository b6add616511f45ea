'use strict';
// Programs that replace themselves while they are sampled by traps: the new program ends by its own code.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const PROGRAM = path.join(__dirname, 'programs', 'execve.js');
const missing = typeof process.execve === 'function' ? false : 'process.execve came with Node.js 22.15 and 23.11';

function ends(way) {
  const { status, signal, stderr } = spawnSync(process.execPath, ['--no-warnings', PROGRAM, way], { encoding: 'utf8', timeout: 60_000 });
  return { end: signal ?? status, stderr };
}

test('a program that executes another one is never ended by a trap', { skip: missing }, (t) => {
  if (ends('probe').end === 2) return t.skip('no traps on this machine');
  for (let turn = 0; turn < 25; turn++) assert.deepEqual(ends('execve'), { end: 7, stderr: '' });
});

test('a program whose arguments are refused is sampled on', { skip: missing }, () => {
  const { end, stderr } = ends('refused');
  assert.ok(end === 0 || end === 2, stderr);
});
