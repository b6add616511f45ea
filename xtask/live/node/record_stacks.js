'use strict';
// Prints the fixture of one recorded stack: the words that a walk read, for the tests that replay it. The only argument is the
// shape. Needs a module with the feature `record-stacks`. The recorded stack must have the functions of its shape.

const path = require('node:path');
const spanprof = require('spanprof');
const { folder, into, fail } = require('./suite.js');

// The package exports no functions that only tests call.
const { native } = require(path.join(path.dirname(require.resolve('spanprof/package.json')), 'lib/native.js'));

/** Milliseconds for which a shape stays on the stack; several sampling intervals. */
const BURST_MS = 20;
/** A shape that is not recorded within this time ends the program with an error. */
const MAX_MS = 60_000;

let sink = 0;

function interpretedCaller(end) {
  return interpreted(end) + 1;
}
function interpreted(end) {
  let sum = 0;
  while (Date.now() < end) for (let n = 0; n < 1000; n++) sum = (sum + n * 7) % 1021;
  return sum;
}

/** A function per shape that stays on the stack until `end`. */
const SHAPES = {
  interpreted: interpretedCaller,
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
    native.requestRecording();
    sink += await spanprof.tagWrapper({ shape }, () => run(Date.now() + BURST_MS));
    await spanprof.flush();
    const recording = native.takeRecording(shape);
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
