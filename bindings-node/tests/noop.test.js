'use strict';
// A package whose native module cannot be loaded: every function exists and does nothing, and the program runs normally.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { temporaryDirectory } = require('./run_node.js');

const PACKAGE = path.join(__dirname, '..');

/** A copy of the package without a loadable native module, installed for a program of its own. */
function installedWithout(t, damage) {
  const folder = temporaryDirectory(t);
  const copy = path.join(folder, 'node_modules', 'spanprof');
  for (const part of ['lib', 'package.json']) fs.cpSync(path.join(PACKAGE, part), path.join(copy, part), { recursive: true });
  damage(path.join(copy, 'prebuilds', `${process.platform}-${process.arch}`));
  return (name, source, ...flags) => {
    fs.writeFileSync(path.join(folder, name), source);
    return spawnSync(process.execPath, [...flags, name], { cwd: folder, encoding: 'utf8', timeout: 180_000 });
  };
}

const ALL_FUNCTIONS = `
const assert = require('node:assert/strict');
const spanprof = require('spanprof');
assert.equal(spanprof.start({ serviceName: 'x' }), false);
assert.equal(spanprof.tagWrapper({ a: 1 }, (x, y) => x + y, 1, 2), 3);
assert.equal(spanprof.tag_wrapper({ a: 1 }, () => 4), 4);
assert.equal(spanprof.wrapWithLabels({ a: 1 }, () => 5), 5);
assert.throws(() => spanprof.tagWrapper({}, () => { throw new RangeError('mine'); }), RangeError);
spanprof.setLabels({ a: 1 });
assert.deepEqual(spanprof.getLabels(), {});
assert.equal(spanprof.bind((x) => x)(6), 6);
assert.equal(spanprof.update({ sampleRate: 10 }), false);
assert.deepEqual(spanprof.stats(), {});
assert.equal(spanprof.isRunning(), false);
assert.equal(spanprof.tagWrapper(spanprof.prepareLabels({ a: 1 }), () => 8), 8);
let went = false;
spanprof.expressMiddleware()({ method: 'GET', headers: {} }, {}, () => { went = true; });
assert.equal(went, true);
const pprof = require('spanprof/pprof');
pprof.heap.start(4096, 64);
const stop = pprof.time.start();
assert.deepEqual([stop().sample, pprof.heap.profile().sample, pprof.heap.v8Profile().children], [[], [], []]);
pprof.heap.stop();
const wall = pprof.time.profile({ durationMillis: 1 }).then((profile) => pprof.encode(profile)).then((bytes) => bytes.length > 20);
Promise.all([spanprof.flush(1), spanprof.stop(), spanprof.tagWrapper({ a: 1 }, async () => 7), wall]).then((all) => {
  assert.deepEqual(all, [true, true, 7, true]);
  console.log('complete');
});
`;

test('without a native module every function does nothing and one warning gives the reason', (t) => {
  const run = installedWithout(t, () => {});
  const done = run('program.js', ALL_FUNCTIONS);
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /complete/);
  assert.equal(done.stderr.match(/SpanprofWarning/g)?.length, 1, done.stderr);
});

test('a damaged native module counts as missing', (t) => {
  const run = installedWithout(t, (folder) => {
    fs.mkdirSync(folder, { recursive: true });
    fs.writeFileSync(path.join(folder, 'spanprof.node'), 'not a library');
  });
  const done = run('program.js', ALL_FUNCTIONS);
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stderr, /could not be loaded/);
});

test('a native module truncated at any length counts as missing', (t) => {
  const complete = fs.readFileSync(path.join(PACKAGE, 'prebuilds', `${process.platform}-${process.arch}`, 'spanprof.node'));
  for (const part of [0, 40, 64, 5000, complete.length >> 1, complete.length - 1]) {
    const run = installedWithout(t, (folder) => {
      fs.mkdirSync(folder, { recursive: true });
      fs.writeFileSync(path.join(folder, 'spanprof.node'), complete.subarray(0, part));
    });
    const done = run('program.js', ALL_FUNCTIONS);
    assert.equal(done.status, 0, `${part} bytes: ${done.signal} ${done.stderr}`);
    assert.match(done.stdout, /complete/);
    assert.equal(done.stderr.match(/SpanprofWarning/g)?.length, 1, done.stderr);
    if (part >= 64) assert.match(done.stderr, new RegExp(`truncated: ${part} bytes of at least \\d+`));
  }
});

test('a program preloads the package by require and by import without a change', (t) => {
  const run = installedWithout(t, () => {});
  for (const flag of ['--require', '--import']) {
    const done = run('program.mjs', "console.log('mine');", flag, 'spanprof/register');
    assert.equal(done.status, 0, done.stderr);
    assert.equal(done.stdout, 'mine\n');
  }
});

for (const [key, name] of [['bun', 'Bun'], ['deno', 'Deno']]) {
  test(`in ${name} every function does nothing and one warning names it`, (t) => {
    // The native module is here: it must not be loaded.
    const run = installedWithout(t, (folder) => fs.cpSync(path.join(PACKAGE, 'prebuilds'), path.join(folder, '..'), { recursive: true }));
    // Without its permission, Deno throws where a variable is read.
    const program = `
      Object.defineProperty(process.versions, '${key}', { value: '9.8.7' });
      const get = (values, name) => { if (/PYRO|SPANPROF|OTEL/.test(String(name))) throw new Error('Requires env access'); return values[name]; };
      const { env } = process;
      Object.defineProperty(process, 'env', { value: new Proxy(env, { get }) });
      ${ALL_FUNCTIONS}`;
    const done = run('program.js', program);
    assert.equal(done.status, 0, done.stderr);
    assert.match(done.stdout, /complete/);
    assert.match(done.stderr, new RegExp(`it profiles Node\\.js, and this is ${name} 9\\.8\\.7\\. Run the service with Node\\.js`));
    assert.equal(done.stderr.match(/SpanprofWarning/g)?.length, 1, done.stderr);
  });
}
