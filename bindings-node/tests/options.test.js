'use strict';
// Options that `start` refuses and their messages, labels that a scope leaves out, and the last window before a signal.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const spanprof = require('spanprof');
const { temporaryDirectory } = require('./run_node.js');

const refused = (options, message) => assert.throws(() => spanprof.start(options), (error) => {
  assert.equal(error.constructor, spanprof.SpanprofError);
  assert.equal(error.kind, 'invalid_config');
  assert.match(error.message, message);
  return true;
});

test('messages spell options in camelCase', () => {
  refused({ sampleRate: 99_999 }, /^sampleRate .* got `?99999/);
  refused({ wallRate: 0 }, /^wallRate /);
  assert.doesNotThrow(() => spanprof.update({ sampleRate: 1e9 }), 'nothing runs');
});

test('options specific to Node.js are validated', () => {
  refused({ stackWalk: 'magic' }, /stackWalk \(code\) must be auto or own or v8, got `magic`/);
  refused({ workerThreads: 'maybe' }, /workerThreads \(code\) must be true or false, got `maybe`/);
  for (const eventLoopBlock of [-1, NaN, {}]) refused({ eventLoopBlock }, /eventLoopBlock \(code\) must be a number between 0 and 3600000 ms/);
  for (const stopOnSignals of ['SIGTERM', ['SIGKILL'], ['SIGNONE'], [15]]) refused({ stopOnSignals }, /stopOnSignals must be a list/);
  assert.equal(spanprof.stats().state, undefined);
});

test('options whose property access throws are refused', () => {
  const throwing = new Proxy({}, { ownKeys() { throw new RangeError('mine'); }, get() { throw new RangeError('mine'); } });
  refused(throwing, /the options could not be read: mine/);
  refused({ tags: throwing }, /the options could not be read: mine/);
  assert.throws(() => spanprof.update(throwing), spanprof.SpanprofError);
  assert.doesNotThrow(() => spanprof.init(throwing));
  refused({}, /the options could not be read: mine/);
  spanprof.init({});
});

test('a value without a text form is left out with one warning, others become text', async () => {
  const warned = [];
  spanprof.setLogger({ warn: (line) => warned.push(line) });
  const labels = spanprof.tagWrapper({
    text: 'a', number: 1.5, flag: false, big: 2n, url: new URL('http://a/b'), list: [1, 2],
    object: { id: 1 }, map: new Map(), made: () => 1, none: null, absent: undefined,
  }, spanprof.getLabels);
  assert.deepEqual(labels, { text: 'a', number: '1.5', flag: 'false', big: '2', url: 'http://a/b', list: '1,2' });
  spanprof.setLogger(undefined);
  assert.equal(warned.length, 1);
  assert.match(warned[0], /label 'object' is left out.*got \[object Object\]/);
});

test('labels, functions and loggers that throw never affect the program', () => {
  const throwing = new Proxy(() => 7, { get() { throw new RangeError('mine'); }, getPrototypeOf() { throw new RangeError('mine'); }, ownKeys() { throw new RangeError('mine'); } });
  assert.equal(spanprof.tagWrapper(throwing, () => 1), 1);
  assert.equal(spanprof.tagWrapper({ a: throwing, b: 1 }, () => spanprof.getLabels().b), '1');
  spanprof.setLabels(throwing);
  assert.doesNotThrow(() => spanprof.bind(throwing));
  assert.doesNotThrow(() => spanprof.setLogger(throwing));
  spanprof.setLogger(undefined);
});

const SERVICE = `
  const spanprof = require('spanprof');
  const own = () => setTimeout(() => process.exit(5), 300);
  if (process.argv[3] === 'before') process.once('SIGTERM', own);
  spanprof.start({ serviceName: 'signalled', uploadInterval: 300, destinations: [{ type: 'file', directory: process.argv[1] }], stopOnSignals: JSON.parse(process.argv[2]) });
  if (process.argv[3] === 'after') process.once('SIGTERM', own);
  if (process.argv[3] === 'raised') process.once('SIGTERM', () => process.kill(process.pid, 'SIGTERM'));
  if (process.argv[3] === 'removed') process.on('SIGTERM', own).off('SIGTERM', own);
  const work = () => { for (const until = process.cpuUsage().user + 300_000; process.cpuUsage().user < until;); };
  work();
  // The first window also reads the symbols of Node.js.
  spanprof.flush(30).then(() => {
    work();
    console.log(process.listenerCount('SIGTERM'));
    if (process.argv[3] === 'itself') process.kill(process.pid, 'SIGTERM');
    if (process.argv[3] === 'blocked') for (;;);
    setInterval(() => {}, 1000);
  });`;

/** The end of a service after SIGTERM, its number of listeners before, and its number of windows. */
async function endOf(t, signals, way = '') {
  const directory = temporaryDirectory(t);
  const child = spawn(process.execPath, ['-e', SERVICE, directory, JSON.stringify(signals), way], { cwd: __dirname, stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  const listeners = Number(await once(child.stdout, 'data'));
  if (way !== 'itself') child.kill('SIGTERM');
  const [code, signal] = await exit;
  const windows = fs.readdirSync(directory).filter((name) => /^cpu-.*\.pb\.gz$/.test(name)).length;
  // On a busy machine the end itself has samples, and thus one more window.
  return { code, signal, listeners, windows: Math.min(windows, 2) };
}

test('a signal in stopOnSignals sends the last window, and then ends the process', async (t) => {
  assert.deepEqual(await endOf(t, ['SIGTERM']), { code: null, signal: 'SIGTERM', listeners: 1, windows: 2 });
});

for (const [way, meaning] of Object.entries({
  sent: 'without a listener',
  itself: 'that the process sends to itself',
  blocked: 'while JavaScript blocks the event loop',
  removed: 'after its only listener was removed',
  raised: 'that its `once` listener raises again',
})) {
  test(`SIGTERM ${meaning} sends the last window, and then ends the process`, async (t) => {
    assert.deepEqual(await endOf(t, [], way), { code: null, signal: 'SIGTERM', listeners: Number(way === 'raised'), windows: 2 });
  });
}

for (const way of ['before', 'after']) {
  test(`a program with a listener for SIGTERM from ${way} the start decides when it ends`, async (t) => {
    for (const signals of [[], ['SIGTERM']]) {
      assert.deepEqual(await endOf(t, signals, way), { code: 5, signal: null, listeners: 1 + signals.length, windows: 2 });
    }
  });
}

test('with signals false the wall clock installs no signal handler', (t) => {
  const program = `
    const spanprof = require('spanprof');
    const caught = () => /^SigCgt:.*$/m.exec(require('node:fs').readFileSync('/proc/self/status', 'utf8'))[0];
    const before = caught();
    spanprof.start({ serviceName: 'without-signals', destinations: [{ type: 'file', directory: process.argv[1] }], signals: false, wall: true });
    const after = caught();
    spanprof.stop();
    console.log(JSON.stringify([before, after]));`;
  const done = spawnSync(process.execPath, ['-e', program, temporaryDirectory(t)], { cwd: __dirname, encoding: 'utf8', timeout: 60_000 });
  const [before, after] = JSON.parse(done.stdout);
  assert.equal(after, before);
  assert.match(done.stderr, /this runtime does not support wall-clock samples with signals=false/);
});

test('a worker with a preloaded profiler starts without a warning', (t) => {
  const source = 'new (require("node:worker_threads").Worker)("process.exit()", { eval: true }).on("exit", () => console.log("complete"));';
  const env = { PATH: process.env.PATH, SPANPROF_FILE_DIRECTORY: temporaryDirectory(t) };
  const done = spawnSync(process.execPath, ['--require', 'spanprof/register', '-e', source], { cwd: __dirname, env, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.stdout, 'complete\n', done.stderr);
  assert.match(done.stderr, /^spanprof: stopped after [^\n]*\n$/);
});

const PROGRAM = `
const { Worker } = require('node:worker_threads');
const spanprof = require('spanprof');
spanprof.start({ destinations: [] });
const until = Date.now() + 40;
while (Date.now() < until);
setTimeout(() => {
  const stats = spanprof.stats();
  console.log(JSON.stringify({
    blocks: stats['runtime.node.loop_blocks'] > 0,
    walk: stats['runtime.node.stack_walk'],
    workers: require('node:worker_threads').Worker !== Worker,
  }));
  process.reallyExit(0);
}, 100);`;

function runWith(variables) {
  const env = { ...process.env, ...variables };
  const done = spawnSync(process.execPath, ['-e', PROGRAM], { cwd: __dirname, encoding: 'utf8', env, timeout: 60_000 });
  assert.equal(done.status, 0, done.stderr);
  return { output: JSON.parse(done.stdout), stderr: done.stderr };
}

test('eventLoopBlock, workerThreads and stackWalk have environment variables', () => {
  const none = runWith({ SPANPROF_EVENT_LOOP_BLOCK: '0' });
  assert.deepEqual([none.output.blocks, none.output.workers], [false, true]);
  const { output, stderr } = runWith({
    SPANPROF_EVENT_LOOP_BLOCK: '10', SPANPROF_WORKER_THREADS: 'no', SPANPROF_STACK_WALK: 'v8',
  });
  assert.deepEqual(output, { blocks: true, walk: 'v8', workers: false });
  assert.equal(stderr, '');
});

test('an invalid value is a warning in a variable, and an error in code', () => {
  const { stderr } = runWith({ SPANPROF_STACK_WALK: 'magic', SPANPROF_EVENT_LOOP_BLOCK: '-1' });
  assert.match(stderr, /SPANPROF_STACK_WALK\) must be auto or own or v8, got `magic`; using auto \(default\)/);
  assert.match(stderr, /SPANPROF_EVENT_LOOP_BLOCK\) must be a number between 0 and 3600000 ms, got `-1`; using 50 \(default\)/);
  const program = "require('spanprof').start({ stackWalk: 'magic' })";
  const done = spawnSync(process.execPath, ['-e', program], { cwd: __dirname, encoding: 'utf8', timeout: 60_000 });
  assert.doesNotMatch(done.stderr, /stack_walk/);
  assert.match(done.stderr, /SpanprofError: stackWalk \(code\) must be auto or own/);
});
