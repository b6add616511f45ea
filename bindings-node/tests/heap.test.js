'use strict';
// The heap profile of programs that allocate known numbers of bytes.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const pprof = require('./pprof_file.js');
const { program, runNode, temporaryDirectory } = require('./run_node.js');

/** Runs a scenario; returns its output, its warnings and its directory. */
function run(t, scenario, ...options) {
  const { stdout, warnings, folder } = runNode(t, [...options, program('heap.js')], [scenario]);
  return { ...JSON.parse(stdout), warnings, folder };
}

/** Total of a value in the samples with this function. */
function total(samples, name, value) {
  const matches = samples.filter((sample) => sample.stack.some((frame) => frame.name === name));
  return matches.reduce((sum, sample) => sum + sample.values[value], 0);
}

/** The samples in use in the last window. */
function lastInUse(folder) {
  const files = fs.readdirSync(folder).filter((name) => /^heap-.*\.pb\.gz$/.test(name)).sort();
  return pprof.read(path.join(folder, files.at(-1)));
}

/** Fails if bytes sampled at `interval` differ by more than five standard deviations: a run in two million. */
function assertBytes(what, is, expected, interval) {
  const allowed = 5 * Math.sqrt(expected * interval);
  assert.ok(Math.abs(is - expected) < allowed, `${what}: ${is} bytes, really ${expected} ± ${allowed}`);
}

test('bytes allocated and in use are those of the program, and each window has its own', (t) => {
  const { interval, allocated, stats, warnings, folder, delivered } = run(t, 'windows');
  assert.deepEqual([delivered, warnings], [true, []]);
  const samples = pprof.readAll(folder, 'allocs');
  for (const name of ['keepArrays', 'dropArrays']) {
    assertBytes(name, total(samples, name, 'alloc_space'), allocated[name], interval);
    // An array and its elements are one allocation in optimized code, two in the interpreter.
    const arrays = allocated[name] / 848;
    const objects = total(samples, name, 'alloc_objects');
    assert.ok(objects > 0.8 * arrays && objects < 2.4 * arrays, `${name}: ${objects} objects in ${arrays} arrays`);
  }
  const live = lastInUse(folder);
  assertBytes('kept', total(live, 'keepArrays', 'inuse_space'), allocated.keepArrays, interval);
  // Its last arrays may be alive in a register or in the feedback of the function.
  assert.ok(total(live, 'dropArrays', 'inuse_space') < 0.02 * allocated.dropArrays);
  for (const sample of samples) assert.deepEqual(Object.keys(sample.labels), ['service.name']);
  for (const sample of live) assert.deepEqual(Object.keys(sample.labels).sort(), ['age', 'service.name']);
  const second = fs.readdirSync(folder).filter((name) => /^heap-.*\.pb\.gz$/.test(name)).sort()[1];
  for (const age of ['survived', 'new']) {
    const ofAge = pprof.read(path.join(folder, second)).filter((sample) => sample.labels.age === age);
    assertBytes(age, total(ofAge, 'keepArrays', 'inuse_space'), allocated.keepArrays / 2, interval);
  }
  assert.ok(stats['heap.samples_freed'] > 0 && stats['heap.live_samples'] > 0);
  assert.deepEqual([stats['heap.interval'], stats['dropped.heap_ring_full'], stats['dropped.heap_live']], [interval, 0, 0]);
});

test('a frame has its function, its file and the line of its function', (t) => {
  const { folder } = run(t, 'exit');
  const sample = pprof.readAll(folder, 'allocs').find(({ stack }) => stack.some((frame) => frame.name === 'keepArrays'));
  const caller = sample.stack.find((frame) => frame.name === 'keep');
  assert.equal(caller.file, path.join(__dirname, 'programs', 'heap.js'));
  const source = fs.readFileSync(caller.file, 'utf8').split('\n');
  assert.match(source[caller.line - 1], /^function keep\(/);
});

test('a second run has neither the objects nor the bytes of the first', (t) => {
  const { interval, allocated, folder } = run(t, 'restart');
  const second = path.join(folder, 'second');
  const samples = pprof.readAll(second, 'allocs');
  for (const name of Object.keys(allocated)) assertBytes(name, total(samples, name, 'alloc_space'), allocated[name], interval);
  assertBytes('kept', total(lastInUse(second), 'keepArrays', 'inuse_space'), allocated.keepArrays, interval);
});

test('a program that ends without a stop has its last window', (t) => {
  const { interval, allocated, folder } = run(t, 'exit');
  const samples = pprof.readAll(folder, 'allocs');
  for (const name of Object.keys(allocated)) assertBytes(name, total(samples, name, 'alloc_space'), allocated[name], interval);
  assertBytes('kept', total(lastInUse(folder), 'keepArrays', 'inuse_space'), allocated.keepArrays, interval);
});

test('the objects of a worker are in use until it ends', (t) => {
  const { interval, allocated, during, after, folder, warnings } = run(t, 'worker');
  assert.deepEqual(warnings, []);
  const files = fs.readdirSync(folder).filter((name) => /^heap-.*\.pb\.gz$/.test(name)).sort();
  const windows = files.map((file) => total(pprof.read(path.join(folder, file)), 'keepArrays', 'inuse_space'));
  assertBytes('kept by the worker', windows[0], allocated.keepArrays, interval);
  assert.ok(windows.at(-1) < 0.05 * allocated.keepArrays, `${windows}`);
  assert.ok(after['heap.live_samples'] < during['heap.live_samples'] / 2, JSON.stringify([during, after]));
});

test('another heap profiler of V8 that is active stays, and a later start profiles', (t) => {
  const { running, stats, theirs, second, secondStats, warnings, folder } = run(t, 'refused');
  assert.deepEqual([running, theirs, second], [true, 'object', true]);
  assert.deepEqual([stats['heap.interval'], secondStats['heap.interval']], [0, 16384]);
  assert.equal(warnings.length, 1, warnings.join());
  assert.match(warnings[0], /no heap profile: another heap profiler of V8 is active/);
  assert.ok(fs.readdirSync(folder).some((name) => name.startsWith('cpu-')));
});

test('Node\'s own option for heap profiles takes precedence', (t) => {
  const directory = temporaryDirectory(t);
  const { warnings, folder } = run(t, 'exit', '--heap-prof', `--heap-prof-dir=${directory}`, '--heap-prof-name=own.heapprofile');
  assert.equal(warnings.length, 1, warnings.join());
  // Few objects exceed the interval of Node's option: the profile may be only its root.
  assert.ok(JSON.parse(fs.readFileSync(path.join(directory, 'own.heapprofile'), 'utf8')).head);
  assert.deepEqual(fs.readdirSync(folder).filter((name) => name.startsWith('heap-')), []);
});

test('after another tool stopped the sampler, the heap profile ends with one warning until it is started again', (t) => {
  const { interval, allocated, stats, restarted, warnings, folder } = run(t, 'stopped');
  assert.equal(warnings.length, 1, warnings.join());
  assert.match(warnings[0], /another heap profiler of V8 ended the heap profile/);
  assert.equal(stats['heap.live_samples'], 0);
  assert.ok(restarted['heap.live_samples'] > 0);
  assertBytes('kept', total(lastInUse(folder), 'keepArrays', 'inuse_space'), allocated.keepArrays, interval);
});
