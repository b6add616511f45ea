'use strict';
// Names of functions that have none of their own in V8: built-in functions, and anonymous ones.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { readAll } = require('./pprof_file.js');
const { temporaryDirectory } = require('./run_node.js');

const PROGRAM = `
const spanprof = require('spanprof');
const text = JSON.stringify(Array.from({ length: 2000 }, (_, number) => ({ number, name: 'n' + number })));
const list = Array.from({ length: 500 }, (_, number) => (number * 7919) % 500);
spanprof.start({ serviceName: 'names', sampleRate: 500, destinations: [{ type: 'file', directory: process.argv[1] }] });
let sum = 0;
const cpu = () => process.cpuUsage().user;
const burn = (work) => { const until = cpu() + 250_000; while (cpu() < until) for (let i = 0; i < 20; i++) sum += Number(work() > 0); };
burn(() => JSON.parse(text));
burn(() => list.slice().sort());
spanprof.stop();
`;

test('builtins have the names of JavaScript, and anonymous functions of one file their lines', (t) => {
  const folder = temporaryDirectory(t);
  const program = path.join(folder, 'program.js');
  fs.writeFileSync(program, PROGRAM.replace("'spanprof'", JSON.stringify(path.join(__dirname, '..'))).replace('argv[1]', 'argv[2]'));
  const done = spawnSync(process.execPath, [program, folder], { encoding: 'utf8', timeout: 120_000 });
  assert.equal(done.status, 0, done.stderr);
  const samples = readAll(folder, 'cpu');
  const milliseconds = (name) =>
    samples.filter(({ stack }) => stack.some((frame) => frame.name === name)).reduce((sum, { values }) => sum + values.cpu, 0) / 1e6;
  for (const name of ['JSON.parse', 'Array.sort', '(anonymous) program.js:9', '(anonymous) program.js:10']) {
    const all = [...new Set(samples.flatMap(({ stack }) => stack.map((frame) => frame.name)))];
    assert.ok(milliseconds(name) > 50, `${name}: ${milliseconds(name)} ms; ${all.filter((name) => /program|inlined|burn/.test(name))}`);
  }
  assert.ok(!samples.some(({ stack }) => stack.some(({ name }) => name === '(anonymous)')));
});
