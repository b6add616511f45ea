'use strict';
// Worker threads while profiling: they start normally, are profiled, and do not pass the preload option to their children.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const fs = require('node:fs');
const os = require('node:os');
const { spawnSync } = require('node:child_process');
const file = require('./pprof_file.js');

const THREAD = JSON.stringify(path.join(__dirname, '..', 'lib', 'thread.js'));
const IN_WORKER = `
  const { parentPort } = require('node:worker_threads');
  const { tagWrapper, getLabels } = require('spanprof');
  tagWrapper({ worker: 1 }, async () => {
    await null;
    parentPort.postMessage({ labels: getLabels(), words: process.execArgv, loaded: Object.keys(require.cache).some((name) => name.endsWith('worker.js')) });
  });`;

/** Directory for the profiles of a test's programs. */
function folder(t) {
  process.env.SPANPROF_TEST_FOLDER = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-workers-'));
  t.after(() => fs.rmSync(process.env.SPANPROF_TEST_FOLDER, { recursive: true, force: true }));
}

function runs(source, ...flags) {
  const program = `require(${THREAD}).replaceWorker();
    const { Worker } = require('node:worker_threads');
    const assert = require('node:assert/strict');
    ${source}`;
  const done = spawnSync(process.execPath, [...flags, '-e', program], { cwd: __dirname, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /complete/);
}

test('a worker preloads the profiler, keeps its labels and does not expose the preload option', () =>
  runs(`new Worker(${JSON.stringify(IN_WORKER)}, { eval: true }).on('message', ({ labels, words, loaded }) => {
    assert.deepEqual(labels, { worker: '1' });
    assert.equal(loaded, true);
    assert.equal(words.includes('--require'), false);
    console.log('complete');
  });`));

test('options that a worker inherits but refuses in execArgv do not prevent its start', () =>
  runs(`assert.equal(Worker.name, 'Worker');
    new Worker('require("node:worker_threads").parentPort.postMessage(1)', { eval: true }).on('message', () => console.log('complete'));`,
    '--max-old-space-size=256', '--expose-gc'));

test('a worker with its own execArgv is unchanged, and an invalid call fails as before', () =>
  runs(`assert.throws(() => new Worker(7), { code: 'ERR_INVALID_ARG_TYPE' });
    assert.throws(() => new Worker('1', { eval: true, execArgv: ['--no-such-option'] }), { code: 'ERR_WORKER_INVALID_EXEC_ARGV' });
    new Worker('require("node:worker_threads").parentPort.postMessage(process.execArgv)', { eval: true, execArgv: ['--no-warnings'] })
      .on('message', (words) => { assert.deepEqual(words, ['--no-warnings']); console.log('complete'); });`));

test('workers can be terminated at once repeatedly', () =>
  runs(`(async () => {
    for (let round = 0; round < 10; round++) await new Worker('setInterval(() => {}, 1)', { eval: true }).terminate();
    console.log('complete');
  })();`));

const REPORTS_LABELS = `
  const assert = require('node:assert/strict');
  const { parentPort, Worker } = require('node:worker_threads');
  const { getLabels, tagWrapper } = require('spanprof');
  const { native } = require(${JSON.stringify(path.join(__dirname, '..', 'lib', 'native.js'))});
  const labels = () => {
    const seen = native.describeContext(native.currentInHandler()).labels;
    assert.deepEqual(Object.entries(getLabels()).flat(), seen, 'what samples carry');
    return getLabels();
  };
  parentPort.on('message', (word) => {
    if (word === 'now') parentPort.postMessage(['message', labels()]);
    if (word === 'end') process.exit();
  });
  parentPort.postMessage(['script', labels()]);
  setTimeout(async () => {
    await null;
    parentPort.postMessage(['later', labels()]);
    const source = 'require("node:worker_threads").parentPort.postMessage(require("spanprof").getLabels())';
    const made = (name) => new Worker(source, { eval: true }).on('message', (labels) => parentPort.postMessage([name, labels]));
    made('nested');
    tagWrapper({ step: 'inner' }, made, 'in a scope');
  });`;

/** The labels that workers created inside a scope report. */
function inherits(start) {
  return `
    const { start, stop, tagWrapper, getLabels } = require('spanprof');
    const { getEnvironmentData, SHARE_ENV } = require('node:worker_threads');
    start({ serviceName: 'inherits', destinations: [{ type: 'file', directory: process.env.SPANPROF_TEST_FOLDER }], ...${start} });
    const made = (options) => new Promise((resolve) => {
      const said = {};
      const worker = new Worker(${JSON.stringify(REPORTS_LABELS)}, { eval: true, ...options });
      worker.postMessage('now');
      worker.on('message', ([what, labels]) => {
        said[what] = labels;
        if (Object.keys(said).length === 5) worker.postMessage('end');
      }).on('exit', () => resolve(said));
    });
    tagWrapper({ endpoint: '/cart' }, async () => [await Promise.all([made(), made({ env: SHARE_ENV })]), getLabels()]).then(async ([said, labels]) => {
      assert.deepEqual(labels, { endpoint: '/cart' });
      for (const one of said) check(one);
      check(await made(), 'outside');
      assert.equal(getEnvironmentData('spanprof.creator'), undefined);
      await stop();
      console.log('complete');
    });
`;
}

test('with inheritThreads a worker starts with the labels of its creating scope, and its messages have none', (t) => {
  folder(t);
  runs(`${inherits('{ inheritThreads: true }')}
    function check(said, where) {
      const own = where === 'outside' ? {} : { endpoint: '/cart' };
      const inner = { ...own, step: 'inner' };
      assert.deepEqual(said, { script: own, later: own, message: {}, nested: own, 'in a scope': inner });
    }`);
});

test('without inheritThreads a worker starts without labels', (t) => {
  folder(t);
  runs(`${inherits('{}')}
    function check(said) {
      const none = {};
      assert.deepEqual(said, { script: none, later: none, message: none, nested: none, 'in a scope': none });
    }`);
});

const IS_18 = process.version.startsWith('v18.');

/** A worker that is busy for some time in a function `busy<number>`, called by Node.js itself. */
const busy = (number) => `
  (function busy${number}() {
    const begun = performance.now();
    let sum = 0;
    while (performance.now() - begun < 400) for (let i = 0; i < 5000; i++) sum += Math.sqrt(i);
    return sum;
  })();`;

test('a worker that inherits the preload of the program loads only what enrolls its thread', (t) => {
  folder(t);
  process.env.SPANPROF_FILE_DIRECTORY = process.env.SPANPROF_TEST_FOLDER;
  t.after(() => delete process.env.SPANPROF_FILE_DIRECTORY);
  const loaded = 'require("node:worker_threads").parentPort.postMessage(Object.keys(require.cache))';
  runs(`new Worker(${JSON.stringify(`${busy(0)} ${loaded}`)}, { eval: true }).on('message', (loaded) => {
    const names = loaded.map((name) => require('node:path').basename(name)).sort();
    assert.deepEqual(names, ['copies.js', 'first_copy.js', 'native.js', 'platform.js', 'register.js', 'thread.js', 'worker.js']);
    console.log('complete');
  });`, '--require', path.join(__dirname, '..', 'lib', 'register.js'));
  const samples = file.readAll(process.env.SPANPROF_TEST_FOLDER, 'cpu');
  assert.ok(samples.some(({ stack }) => stack.some(({ name }) => name === 'busy0')), 'it is profiled');
});

test('functions of Node.js have the same names in every worker, though V8 lists those of the first only', (t) => {
  folder(t);
  const count = 6;
  runs(`
    const { start, stop, stats } = require('spanprof');
    start({ serviceName: 'names', sampleRate: 500, destinations: [{ type: 'file', directory: process.env.SPANPROF_TEST_FOLDER }] });
    (async () => {
      for (const source of ${JSON.stringify(Array.from({ length: count }, (_, number) => busy(number)))}) {
        const worker = new Worker(source, { eval: true });
        await new Promise((resolve) => worker.once('exit', resolve));
      }
      // The main thread, the first worker, and perhaps one after a worker whose functions a collection moved: in Node.js 18, each.
      const listings = Number(stats()['runtime.node.code_listings']);
      assert.ok(listings >= 2 && listings <= (${IS_18} ? ${count} + 1 : 4), String(listings));
      await stop();
      console.log('complete');
    })();`);
  const samples = file.readAll(process.env.SPANPROF_TEST_FOLDER, 'cpu');
  /** The functions of Node.js that call it, in most of its samples: one can be in native code of the call. */
  const callers = (number) => {
    const own = samples.filter(({ stack }) => stack.some(({ name }) => name === `busy${number}`));
    const stacks = own.map(({ stack }) => stack.filter(({ file }) => file.startsWith('node:')).map(({ name, file, line }) => `${name} ${file}:${line}`).join('\n'));
    const count = (wanted) => stacks.filter((stack) => stack === wanted).length;
    return stacks.sort((a, b) => count(b) - count(a))[0];
  };
  const first = callers(0);
  assert.match(first, /node:internal\/.*\n.*node:internal\//);
  for (let number = 1; number < count; number++) assert.equal(callers(number), first, `worker ${number}`);
});
