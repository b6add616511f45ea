'use strict';
// Array buffers and Buffers in the heap profile of programs that allocate known numbers of bytes.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const pprof = require('./pprof_file.js');
const { program, runNode } = require('./run_node.js');

/** Runs a scenario; returns its output, its warnings and its directory. */
function run(t, scenario, ...options) {
  const { stdout, warnings, folder } = runNode(t, [...options, program('buffers.js')], [scenario]);
  return { ...JSON.parse(stdout), warnings, folder };
}

/** The samples of array buffers with this function. */
function buffersOf(samples, name) {
  return samples.filter(({ stack }) => stack[0].name === '[ArrayBuffer]' && stack.some((frame) => frame.name === name));
}

function total(samples, name, value) {
  return buffersOf(samples, name).reduce((sum, sample) => sum + sample.values[value], 0);
}

/** The samples in use in each window. */
function inUse(folder) {
  const files = fs.readdirSync(folder).filter((name) => /^heap-.*\.pb\.gz$/.test(name)).sort();
  return files.map((file) => pprof.read(path.join(folder, file)));
}

/** Fails if bytes sampled at `interval` differ by more than five standard deviations: a run in two million. */
function assertBytes(what, is, expected, interval) {
  const allowed = 5 * Math.sqrt(expected * interval);
  assert.ok(Math.abs(is - expected) < allowed, `${what}: ${is} bytes, really ${expected} ± ${allowed}`);
}

test('array buffers are allocated and in use where the program allocates and keeps them', (t) => {
  const { interval, allocated, left, stats, warnings, folder, delivered } = run(t, 'windows');
  assert.deepEqual([delivered, warnings], [true, []]);
  const samples = pprof.readAll(folder, 'allocs');
  const live = inUse(folder).at(-1);
  for (const [name, bytes] of Object.entries(allocated)) {
    assertBytes(name, total(samples, name, 'alloc_space'), bytes, interval);
    if (name === 'dropTyped') continue;
    assertBytes(name, total(live, name, 'inuse_space'), bytes, interval);
    if (name !== 'keepSmall') assertBytes(name, 80_000 * total(live, name, 'inuse_objects'), bytes, interval);
  }
  const all = live.filter(({ stack }) => stack[0].name === '[ArrayBuffer]');
  assertBytes('all', all.reduce((sum, { values }) => sum + values.inuse_space, 0), left, interval);
  assert.ok(total(live, 'dropTyped', 'inuse_space') < 0.1 * allocated.dropTyped);
  assert.deepEqual([stats['dropped.heap_ring_full'], stats['dropped.heap_live']], [0, 0]);
  assert.equal(stats['runtime.node.array_buffer_allocators'], 1);
});

test('a sample has the executing line and the labels of its allocation', (t) => {
  const { folder } = run(t, 'windows');
  const source = fs.readFileSync(path.join(__dirname, 'programs', 'buffers.js'), 'utf8').split('\n');
  for (const samples of [pprof.readAll(folder, 'allocs'), inUse(folder).at(-1)]) {
    const buffers = buffersOf(samples, 'keepBuffers');
    for (const { stack, labels } of buffers) {
      assert.match(source[stack.find((frame) => frame.name === 'keepBuffers').line - 1], /Buffer\.alloc\(BYTES\)/);
      assert.equal(labels.route, 'leak');
    }
    for (const name of ['keepShared', 'keepSmall', 'dropTyped']) {
      for (const { labels } of buffersOf(samples, name)) assert.equal(labels.route, undefined);
    }
  }
});

test('buffers of a worker, and those transferred to it, are in use until it ends', (t) => {
  const { interval, allocated, during, after, folder, warnings } = run(t, 'worker');
  assert.deepEqual(warnings, []);
  const windows = inUse(folder);
  for (const [name, bytes] of Object.entries(allocated)) {
    assertBytes(name, total(windows[0], name, 'inuse_space'), bytes, interval);
    assert.ok(total(windows.at(-1), name, 'inuse_space') < 0.2 * bytes, name);
  }
  assert.equal(during['runtime.node.array_buffer_allocators'], 2);
  assert.equal(after['runtime.node.array_buffer_allocators'], 14);
  assert.ok(after['heap.live_samples'] < during['heap.live_samples'] / 2, JSON.stringify([during, after]));
});

test('a second run has neither the buffers of the first nor those between the runs', (t) => {
  const { interval, allocated, folder } = run(t, 'restart');
  const second = path.join(folder, 'second');
  const samples = pprof.readAll(second, 'allocs');
  for (const name of Object.keys(allocated)) assertBytes(name, total(samples, name, 'alloc_space'), allocated[name], interval);
  assertBytes('kept', total(inUse(second).at(-1), 'keepBuffers', 'inuse_space'), allocated.keepBuffers, interval);
});

test('contents of files are read as without the profiler, and are in the profile', (t) => {
  const { interval, sum, allocated, folder } = run(t, 'files');
  assert.equal(sum, 84_000_000);
  const samples = pprof.readAll(folder, 'allocs').filter(({ stack }) => stack[0].name === '[ArrayBuffer]');
  const read = samples.filter(({ stack }) => stack.some(({ name }) => /^readFile/.test(name)));
  const bytes = read.reduce((total, { values }) => total + values.alloc_space, 0);
  // Node.js may read into larger buffers than the file.
  assert.ok(bytes > allocated.files - 5 * Math.sqrt(allocated.files * interval), `${bytes} of ${allocated.files}`);
});

test('with another allocator of array buffers, the heap profile continues without them after one warning', (t) => {
  const { stats, warnings, folder } = run(t, 'windows', '--debug-arraybuffer-allocations');
  const samples = pprof.readAll(folder, 'allocs');
  const isBuffer = ({ stack }) => stack[0].name === '[ArrayBuffer]';
  assert.equal(stats['runtime.node.array_buffers_refused'], 'the isolate has another allocator of array buffers');
  assert.equal(warnings.length, 1, warnings.join());
  assert.match(warnings[0], /no array buffers and Buffers: the isolate has another allocator/);
  assert.equal(samples.some(isBuffer), false);
  assert.ok(samples.length > 0);
});
