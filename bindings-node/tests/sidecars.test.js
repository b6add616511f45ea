'use strict';
// The side-cars of profile files: the JSON beside each file, with the version that ran and the time of its window.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { runNode } = require('./run_node.js');

const PROGRAM = `
  const spanprof = require('spanprof');
  spanprof.start({
    serviceName: 'shop',
    resourceAttributes: { 'service.version': '1.3.0' },
    fileDirectory: process.argv[1],
    uploadInterval: 3600,
  });
  const until = process.cpuUsage().user + 300_000;
  while (process.cpuUsage().user < until);
  spanprof.stop();`;

/** Runs the program; returns the side-cars of its profiles. */
function sidecars(t) {
  const { folder } = runNode(t, ['-e', PROGRAM], [], { env: { ...process.env, GIT_COMMIT: '4f2a9c0d5e1b' } });
  const files = fs.readdirSync(folder).filter((name) => name.endsWith('.json'));
  assert.notEqual(files.length, 0, `no side-car among ${fs.readdirSync(folder)}`);
  return files.map((name) => JSON.parse(fs.readFileSync(path.join(folder, name), 'utf8')));
}

test('a side-car has the version of the service, its commit, the version of Node.js and the window', (t) => {
  for (const sidecar of sidecars(t)) {
    const { 'window.start': start, 'window.end': end, 'service.instance.id': id, ...others } = sidecar;
    assert.deepEqual(others, {
      'service.name': 'shop',
      'service.version': '1.3.0',
      'git.commit': '4f2a9c0d5e1b',
      'runtime.name': 'nodejs',
      'runtime.version': process.versions.node,
    });
    assert.ok(id.length > 0 && start < end, JSON.stringify(sidecar));
  }
});
