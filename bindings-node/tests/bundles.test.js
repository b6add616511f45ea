'use strict';
// Bundled programs, and programs without permission for addons: they profile where possible, and otherwise one warning gives the
// remedy.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { temporaryDirectory } = require('./run_node.js');

const PACKAGE = path.join(__dirname, '..');
const MAJOR = Number(process.versions.node.split('.', 1)[0]);

const PROGRAM = `
const assert = require('node:assert/strict');
const { isMainThread, parentPort, Worker } = require('node:worker_threads');
const spanprof = require('spanprof');
if (isMainThread) {
  const running = spanprof.start({ serviceName: 'bundled' });
  const labels = spanprof.tagWrapper({ a: 1 }, () => spanprof.getLabels());
  const walk = spanprof.stats()['runtime.node.stack_walk'];
  new Worker(__filename).once('message', async (inWorker) => {
    assert.deepEqual(process.execArgv.filter((word) => word.includes('worker.js')), []);
    const threads = spanprof.stats()['runtime.node.js_threads'];
    await spanprof.stop();
    console.log(JSON.stringify({ running, labels, walk, inWorker, threads }));
  });
} else {
  parentPort.postMessage(spanprof.tagWrapper({ b: 2 }, () => spanprof.getLabels()));
  setTimeout(() => {}, 100);
}`;

function copied(into) {
  for (const part of ['lib', 'package.json', 'prebuilds']) fs.cpSync(path.join(PACKAGE, part), path.join(into, part), { recursive: true });
}

/** A directory with a program and the package, to be bundled. */
function source(t) {
  const folder = temporaryDirectory(t);
  copied(path.join(folder, 'source', 'node_modules', 'spanprof'));
  fs.writeFileSync(path.join(folder, 'source', 'program.js'), PROGRAM);
  return folder;
}

/** Standard error without the line at the end of a run. */
const withoutOutcome = (stderr) => stderr.replace(/^spanprof: stopped after [^\n]*\n/gm, '');

/** Runs a bundle; returns its output and its warnings. */
function run(folder, ...flags) {
  const env = { PATH: process.env.PATH, SPANPROF_FILE_DIRECTORY: path.join(folder, 'out'), SPANPROF_STOP_TIMEOUT: '60' };
  const done = spawnSync(process.execPath, [...flags, path.join(folder, 'bundle', 'program.js')], { cwd: folder, env, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  return { output: JSON.parse(done.stdout), warnings: withoutOutcome(done.stderr) };
}

const BUNDLERS = {
  esbuild(folder, external) {
    require('esbuild').buildSync({
      entryPoints: [path.join(folder, 'source', 'program.js')], outfile: path.join(folder, 'bundle', 'program.js'),
      bundle: true, minify: true, platform: 'node', external, logLevel: 'error',
    });
  },
  async webpack(folder, external) {
    const stats = await new Promise((resolve, reject) => require('webpack')({
      mode: 'production', target: 'node', context: path.join(folder, 'source'), entry: './program.js',
      output: { path: path.join(folder, 'bundle'), filename: 'program.js' },
      externals: Object.fromEntries(external.map((name) => [name, `commonjs ${name}`])),
    }, (error, stats) => (error ? reject(error) : resolve(stats))));
    assert.deepEqual(stats.toJson().errors, []);
    assert.deepEqual(stats.toJson().warnings.filter(({ message }) => message.includes('Critical dependency')), []);
  },
};

for (const [name, bundle] of Object.entries(BUNDLERS)) {
  test(`a bundle of ${name} without the package beside it runs, and the warning names the setting`, async (t) => {
    const folder = source(t);
    await bundle(folder, []);
    const { output, warnings } = run(folder);
    assert.equal(output.running, false);
    assert.match(warnings, /is a bundle.*[Mm]ark spanprof external/);
    assert.match(warnings, new RegExp(name));
  });

  test(`a minified bundle of ${name} with the package beside it profiles, workers too`, async (t) => {
    const folder = source(t);
    await bundle(folder, []);
    copied(path.join(folder, 'bundle', 'node_modules', 'spanprof'));
    const { output, warnings } = run(folder);
    assert.deepEqual(output, { running: true, labels: { a: '1' }, walk: 'own', inWorker: { b: '2' }, threads: 2 }, warnings);
    assert.equal(warnings, '');
  });

  test(`a bundle of ${name} that leaves spanprof external profiles`, async (t) => {
    const folder = source(t);
    await bundle(folder, ['spanprof']);
    copied(path.join(folder, 'node_modules', 'spanprof'));
    const { output, warnings } = run(folder);
    assert.equal(output.running, true, warnings);
    assert.equal(warnings, '');
  });
}

test('a bundle does not use an installed package of another version', async (t) => {
  const folder = source(t);
  BUNDLERS.esbuild(folder, []);
  const beside = path.join(folder, 'bundle', 'node_modules', 'spanprof');
  copied(beside);
  fs.writeFileSync(path.join(beside, 'package.json'), '{"version": "0.0.1"}');
  assert.equal(run(folder).output.running, false);
});

test('without permission for addons the warning names the flag, and with it the program profiles', { skip: MAJOR < 20 }, (t) => {
  const folder = source(t);
  fs.renameSync(path.join(folder, 'source'), path.join(folder, 'bundle'));
  const permission = [MAJOR < 22 ? '--experimental-permission' : '--permission', '--allow-fs-read=*', '--allow-fs-write=*', '--allow-worker'];
  const without = run(folder, ...permission);
  assert.equal(without.output.running, false);
  assert.match(without.warnings, /--allow-addons/);
  const { output, warnings } = run(folder, ...permission, '--allow-addons');
  assert.equal(output.running, true, warnings);
});

test('tools that trace the files of a program find the native module and the preload of workers', async (t) => {
  const { nodeFileTrace } = require('@vercel/nft');
  const base = path.join(source(t), 'source');
  const published = 'node_modules/spanprof-linux-arm64-musl/spanprof.node';
  fs.mkdirSync(path.dirname(path.join(base, published)));
  fs.writeFileSync(path.join(base, published), '');
  const { fileList } = await nodeFileTrace([path.join(base, 'program.js')], { base });
  const inside = (file) => fileList.has(path.join('node_modules/spanprof', file));
  for (const file of ['prebuilds/linux-x64/spanprof.node', 'lib/worker.js']) assert.ok(inside(file), file);
  assert.ok(fileList.has(published), 'the package of a platform');
});
