'use strict';
// Prints the fixture of one recorded stack: the words that a walk read, for the tests that replay it. The only argument is the
// shape. Needs a module with the feature `record-stacks`. The recorded stack must have the functions of its shape.

const path = require('node:path');
const spanprof = require('spanprof');
const { folder, into, fail } = require('./suite.js');

// The package exports no functions that only tests call.
const { native: addon } = require(path.join(path.dirname(require.resolve('spanprof/package.json')), 'lib/native.js'));

/** Milliseconds for which a shape stays on the stack; several sampling intervals. */
const BURST_MS = 20;
/** A shape that is not recorded within this time ends the program with an error. */
const MAX_MS = 60_000;

let sink = 0;

/** Takes a part of a millisecond. */
const ROUNDS = 1000;

function interpretedCaller(end) {
  return interpreted(end) + 1;
}
function interpreted(end) {
  let sum = 0;
  while (Date.now() < end) for (let n = 0; n < ROUNDS; n++) sum = (sum + n * 7) % 1021;
  return sum;
}

function baselineCaller(end) {
  return baseline(end) + 1;
}
function baseline(end) {
  let sum = 0;
  while (Date.now() < end) for (let n = 0; n < ROUNDS; n++) sum = (sum + n * 7) % 1021;
  return sum;
}

function optimizedCaller(end) {
  return optimized(end) + 1;
}
function optimized(end) {
  let sum = 0;
  while (Date.now() < end) for (let n = 0; n < 100 * ROUNDS; n++) sum = (sum + n * 7) % 1021;
  return sum;
}

function framelessCaller(end) {
  let sum = 0;
  while (Date.now() < end) for (let n = 0; n < 100 * ROUNDS; n++) sum = frameless(sum, n);
  return sum;
}
function frameless(sum, n) {
  return sum ^ n;
}

const objects = Array.from({ length: 10 * ROUNDS }, () => ({}));
function builtinCaller(end) {
  return builtin(end) + 1;
}
function builtin(end) {
  let found = 0;
  while (Date.now() < end) found += objects.lastIndexOf(objects);
  return found;
}

// On arm64 V8 searches 48 or more of them by a C function (13.6, Node.js 24).
const numbers = Array.from({ length: 40 }, (_, index) => index + 0.5);
function framelessBuiltinCaller(end) {
  return framelessBuiltin(end) + 1;
}
function framelessBuiltin(end) {
  let found = 0;
  while (Date.now() < end) for (let n = 0; n < ROUNDS; n++) found += numbers.indexOf(-1);
  return found;
}

function fastCallCaller(end) {
  return fastCall(end) + 1;
}
function fastCall(end) {
  let sum = 0;
  while (Date.now() < end) for (let n = 1; n < 100 * ROUNDS; n++) sum += Math.sin(n);
  return sum;
}

async function asyncCaller(end) {
  return (await asyncLeaf(end)) + 1;
}
async function asyncLeaf(end) {
  await null;
  let sum = 0;
  while (Date.now() < end) for (let n = 0; n < ROUNDS; n++) sum = (sum + n * 7) % 1021;
  return sum;
}

function generatorCaller(end) {
  let sum = 0;
  const numbers = generator();
  while (Date.now() < end) sum += numbers.next().value;
  return sum;
}
function* generator() {
  for (;;) {
    let sum = 0;
    for (let n = 0; n < ROUNDS; n++) sum = (sum + n * 7) % 1021;
    yield sum;
  }
}

const bytes = Buffer.alloc(1 << 20, 'ab');
function nativeCaller(end) {
  return native(end) + 1;
}
function native(end) {
  let found = 0;
  while (Date.now() < end) found += bytes.indexOf('aab');
  return found;
}

function collectingCaller(end) {
  return collecting(end) + 1;
}
function collecting(end) {
  while (Date.now() < end) globalThis.gc();
  return objects.length;
}

/** A function per shape that stays on the stack until `end`. */
const SHAPES = {
  interpreted: interpretedCaller,
  baseline: baselineCaller,
  optimized: optimizedCaller,
  frameless: framelessCaller,
  builtin: builtinCaller,
  'frameless-builtin': framelessBuiltinCaller,
  'fast-call': fastCallCaller,
  async: asyncCaller,
  generator: generatorCaller,
  native: nativeCaller,
  collecting: collectingCaller,
};

async function main() {
  const [, , shape] = process.argv;
  const run = SHAPES[shape];
  if (run === undefined) fail(`unknown shape ${shape}`);
  if (!spanprof.start(into(folder(), { sampleRate: 1000, wall: false }))) fail('not started');
  const began = Date.now();
  let last = null;
  while (Date.now() - began < MAX_MS) {
    // A short stack: the loop's own frames only.
    await new Promise((resolve) => setImmediate(resolve));
    addon.requestRecording();
    sink += await spanprof.tagWrapper({ shape }, () => run(Date.now() + BURST_MS));
    await spanprof.flush();
    const recording = addon.takeRecording(shape);
    if (recording?.isAsRequested) {
      process.stdout.write(recording.fixture);
      await spanprof.stop();
      return;
    }
    last = recording ?? last;
  }
  fail(`not recorded; the last stack: ${last?.fixture}`);
}

main();
