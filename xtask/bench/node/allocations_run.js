'use strict';
// Allocates 60, 30 and 10 % of 6.4 GB in three functions, arrays of 64 bytes to 4 MiB, and leaks 80 MB, under one profiler. Prints
// the true values as JSON, for ../every-language.
//
//     allocations_run.js PROFILER SEED FOLDER

const fs = require('node:fs');
const path = require('node:path');
const v8 = require('node:v8');
const vm = require('node:vm');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');

/** Bytes of a round. */
const ROUND = 64e6;
const ROUNDS = 100;
/** Rounds with different sizes. */
const DIFFERENT = 5;
const LEAK = 80e6;
/** Bytes of an array object, of the header of its elements, and of an element. */
const ARRAY = 32;
const HEADER = 16;
const ELEMENT = 8;
const RANGES = { sixty: [0.6, 64, 512], thirty: [0.3, 1000, 100_000], tenth: [0.1, 200_000, 4 << 20] };

const kept = [];
let sink;

function sixty(lengths) {
  for (let i = 0; i < lengths.length; i++) sink = new Array(lengths[i]);
}
function thirty(lengths) {
  for (let i = 0; i < lengths.length; i++) sink = new Array(lengths[i]);
}
function tenth(lengths) {
  for (let i = 0; i < lengths.length; i++) sink = new Array(lengths[i]);
}
function leak(lengths) {
  for (let i = 0; i < lengths.length; i++) kept[kept.length] = new Array(lengths[i]);
}
const FUNCTIONS = { sixty, thirty, tenth };

/** Random numbers below 1 from a seed: xorshift. */
function randomNumbers(seed) {
  let state = 88172645 + seed * 2654435761;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** Lengths of arrays of this total size; sizes with uniform logarithms. */
function drawn(random, total, low, high) {
  const lengths = [];
  for (let left = total; left > 0;) {
    const length = Math.floor((low * (high / low) ** random() - ARRAY - HEADER) / ELEMENT);
    lengths.push(length);
    left -= ARRAY + HEADER + ELEMENT * length;
  }
  return lengths;
}

/** Sizes and numbers of objects: an array is one object and its elements are another. */
function sizes(lengths, times) {
  const counts = new Map([[ARRAY, lengths.length * times]]);
  for (const length of lengths) {
    const size = HEADER + ELEMENT * length;
    counts.set(size, (counts.get(size) ?? 0) + times);
  }
  return [...counts];
}

/** Starts a profiler by its name, `spanprof, INTERVAL`; returns the interval of its samples and its stop function. */
function start(name, folder) {
  if (name.startsWith('spanprof, ')) {
    const spanprof = require('spanprof');
    const interval = Number(name.slice('spanprof, '.length));
    const destinations = [{ type: 'file', directory: folder }];
    spanprof.start({ cpu: false, gc: false, heapInterval: interval, uploadInterval: 3600, destinations });
    return { interval, types: { alloc: 'alloc_space', inuse: 'inuse_space' }, stop: () => spanprof.stop() };
  }
  const { encodeSync, heap } = require('@datadog/pprof');
  const interval = 512 * 1024;
  heap.start(interval, 64);
  const stop = () => fs.writeFileSync(path.join(folder, 'datadog.pb.gz'), encodeSync(heap.profile()));
  return { interval, types: { inuse: 'inuse_space' }, stop };
}

async function main() {
  const [name, seed, folder] = process.argv.slice(2);
  const random = randomNumbers(Number(seed));
  const lengths = {};
  for (const [part, [share, low, high]] of Object.entries(RANGES)) {
    const every = drawn(random, DIFFERENT * ROUND * share, low, high);
    lengths[part] = Array.from({ length: DIFFERENT }, (_, number) => every.filter((_, index) => index % DIFFERENT === number));
  }
  const leaked = drawn(random, LEAK / ROUNDS, 1000, 64_000);
  const all = (round) => {
    for (const [part, allocate] of Object.entries(FUNCTIONS)) allocate(lengths[part][round % DIFFERENT]);
  };
  for (let round = 0; round < DIFFERENT; round++) all(round);
  leak(new Array(100).fill(1));
  kept.length = 0;
  const { interval, types, stop } = start(name, folder);
  for (let round = 0; round < ROUNDS; round++) {
    all(round);
    leak(leaked);
  }
  sink = undefined;
  // Objects of the first collection's own making are collected by the second.
  gc();
  gc();
  await stop();
  const checks = [];
  const check = (part, type, of) => checks.push({ name: `${part}, ${type}`, function: part, type, interval, sizes: of });
  if (types.alloc) {
    for (const part of Object.keys(FUNCTIONS)) check(part, types.alloc, sizes(lengths[part].flat(), ROUNDS / DIFFERENT));
  }
  if (types.inuse) check('leak', types.inuse, sizes(leaked, ROUNDS));
  console.log(JSON.stringify({ checks }));
  process.exit(kept.length > 0 ? 0 : 1);
}

main();
