'use strict';
// The names in stats() are documented, and a working program has no faults.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { runNode } = require('./run_node.js');

const PROGRAM = `
const spanprof = require('spanprof');
const destinations = [{ type: 'file', directory: process.argv[1] }];
spanprof.start({ serviceName: 'statistics', destinations, profiles: 'all', sampleRate: 1000 });
for (const end = Date.now() + 500; Date.now() < end;) JSON.parse(JSON.stringify(new Array(1000).fill({ a: ['b'] })));
spanprof.flush(10).then(() => {
  const stats = spanprof.stats();
  console.log(JSON.stringify({ names: Object.keys(stats), faults: Number(stats['clock.guarded_faults']) }));
  return spanprof.stop();
});
`;

const statistics = (t) => JSON.parse(runNode(t, ['-e', PROGRAM]).stdout);

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
  const names = documented();
  const { names: all, faults } = statistics(t);
  assert.ok(all.length > 100, all.join());
  // A handler of SIGSEGV that the program installs after the start would be called.
  assert.equal(faults, 0);
  for (const name of all.map(general)) {
    const [, group, mark, reason] = /^(.*dropped)([._])(.*)$/.exec(name) ?? [];
    const isReason = names.has(reason) && names.has(`${group}${mark}<reason>`);
    assert.ok(names.has(name) || isReason, name);
  }
});
