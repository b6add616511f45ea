'use strict';
// Runs programs in processes of their own, each with a directory that is removed after its test.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

function temporaryDirectory(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-tests-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/**
 * Runs Node.js with these arguments, the directory and `rest`, until it ends with status 0.
 * @returns its output, its directory and the lines of standard error with a warning
 */
function runNode(t, argv, rest = [], options = {}) {
  const folder = temporaryDirectory(t);
  const done = spawnSync(process.execPath, [...argv, folder, ...rest], { cwd: __dirname, encoding: 'utf8', timeout: 180_000, ...options });
  assert.equal(done.status, 0, `${done.signal} ${done.stderr}`);
  return { stdout: done.stdout, folder, warnings: done.stderr.split('\n').filter((line) => line.includes('SpanprofWarning')) };
}

/** The path of a program of the tests. */
const program = (name) => path.join(__dirname, 'programs', name);

module.exports = { program, runNode, temporaryDirectory };
