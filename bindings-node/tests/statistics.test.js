'use strict';
// The names in stats() are documented, and a working program has no faults.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

const PROGRAM = `
const spanprof = require(process.argv[1]);
const destinations = [{ type: 'file', directory: process.argv[2] }];
spanprof.start({ serviceName: 'statistics', destinations, profiles: 'all', sampleRate: 1000 });
for (const end = Date.now() + 500; Date.now() < end;) JSON.parse(JSON.stringify(new Array(1000).fill({ a: ['b'] })));
spanprof.flush(10).then(() => {
  const stats = spanprof.stats();
  console.log(JSON.stringify({ names: Object.keys(stats), faults: Number(stats['clock.guarded_faults']) }));
  return spanprof.stop();
});
`;

function statistics(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-statistics-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const words = ['-e', PROGRAM, path.join(__dirname, '..'), folder];
  const done = spawnSync(process.execPath, words, { encoding: 'utf8', timeout: 60_000 });
  assert.equal(done.status, 0, done.stderr);
  return JSON.parse(done.stdout);
}

function documented() {
  const page = (name) => fs.readFileSync(path.join(__dirname, '..', '..', 'docs', name), 'utf8');
  const texts = page('reference/statistics.md') + page('internals/runtime-statistics.md');
  return new Set([...texts.matchAll(/`([^`\n]+)`/g)].map(([, name]) => name));
}

// Normalizes destination numbers and key names; the names of this runtime have a table of their own.
function general(name) {
  return name
    .replace(/^config\.[a-z_]+/, 'config.<key>')
    .replace(/^export\.\d+\./, 'export.<n>.')
    .replace(/^runtime\.node\./, '')
    .replace(/^loop_turns_up_to_.*/, 'loop_turns_up_to_1_ms');
}

test('every name in stats() is documented, and a working program has no faults', (t) => {
  const known = documented();
  const { names: all, faults } = statistics(t);
  assert.ok(all.length > 100, all.join());
  // A handler of SIGSEGV that the program installs after the start would be called.
  assert.equal(faults, 0);
  for (const name of all.map(general)) {
    const [, group, mark, reason] = /^(.*dropped)([._])(.*)$/.exec(name) ?? [];
    const isReason = known.has(reason) && known.has(`${group}${mark}<reason>`);
    assert.ok(known.has(name) || isReason, name);
  }
});
