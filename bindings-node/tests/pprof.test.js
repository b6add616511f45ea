'use strict';
// Programs written for the package `pprof`, with only the import changed, against known times and known numbers of bytes.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const file = require('./pprof_file.js');
const { temporaryDirectory } = require('./run_node.js');

const PACKAGE = path.join(__dirname, '..');
const REQUIRE = "const pprof = require('spanprof/pprof'); const fs = require('fs'); const spanprof = require('spanprof');";
const IMPORT = "import * as pprof from 'spanprof/pprof'; import fs from 'node:fs'; import spanprof from 'spanprof';";
/** `burn` runs for a known time; `report` prints the results of the program. */
const COMMON = `
  const directory = process.argv.at(-1);
  const into = (name) => directory + '/' + name;
  const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const burned = {};
  function burn(ms, name) {
    const begun = performance.now();
    let sum = 0;
    while (performance.now() - begun < ms) for (let i = 0; i < 5000; i++) sum += Math.sqrt(i);
    burned[name] = (burned[name] ?? 0) + performance.now() - begun;
    return sum;
  }
  const report = (more) => console.log(JSON.stringify({ burned, ...more }));
`;

/** Runs a program; returns what it reports, its directory and its warnings. */
function run(t, source, { flags = [], variables = {}, cwd = PACKAGE } = {}) {
  const folder = temporaryDirectory(t);
  const type = source.startsWith('import') ? ['--input-type=module'] : [];
  const [imports, ...rest] = source.split('\n');
  const program = [imports, COMMON, ...rest].join('\n');
  const env = { PATH: process.env.PATH, SPANPROF_STOP_TIMEOUT: '60', ...variables };
  const done = spawnSync(process.execPath, [...flags, ...type, '-e', program, folder], { cwd, env, encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, `${done.signal} ${done.stderr}`);
  const output = done.stdout === '' ? {} : JSON.parse(done.stdout);
  return { ...output, folder, warnings: done.stderr, pid: done.pid, read: (name) => file.read(path.join(folder, name)) };
}

/** Milliseconds of the samples with this function; of all without a name. */
function wallMs(samples, name) {
  const matches = samples.filter((sample) => name === undefined || sample.stack.some((frame) => frame.name === name));
  return matches.reduce((sum, sample) => sum + sample.values.wall, 0) / 1000;
}

/**
 * Fails if a time differs by more than a quarter. A sample stands for the time since the last one: beginning and end of the work
 * are uncertain by one interval each, which is some 10 ms, or 100 ms on a loaded machine.
 */
function assertMs(what, is, expected) {
  assert.ok(Math.abs(is - expected) < Math.max(0.25 * expected, 200), `${what}: ${is} ms, really ${expected}`);
}

const WALL = `
  function handler() { burn(1000, 'handler'); }
  (async () => {
    setTimeout(handler, 500);
    const profile = await pprof.time.profile({
      durationMillis: 2000,
    });
    const buf = await pprof.encode(profile);
    fs.writeFile(into('wall.pb.gz'), buf, (err) => {
      if (err) throw err;
      report({ duration: profile.durationNanos / 1e6, runs: spanprof.isRunning() });
    });
  })();
`;

for (const [system, imports] of [['CommonJS', REQUIRE], ['ES modules', IMPORT]]) {
  test(`a wall-clock profile has the known time of a function, in ${system}`, (t) => {
    const { burned, duration, runs, warnings, read } = run(t, `${imports}\n${WALL}`);
    const samples = read('wall.pb.gz');
    assert.deepEqual(Object.keys(samples[0].values), ['sample', 'wall']);
    assertMs('handler', wallMs(samples, 'handler'), burned.handler);
    assertMs('(idle)', wallMs(samples, '(idle)'), duration - burned.handler);
    // The samples of one thread cover all of the time.
    assertMs('all', wallMs(samples), duration);
    assert.equal(runs, false, 'the temporary profiler ends with the profile');
    assert.equal(warnings, '');
  });
}

test('a profile from start to stop is an object with the fields of profile.proto', (t) => {
  const { burned, profile, again, between, after } = run(t, `${REQUIRE}
    const stop = pprof.time.start(2000, 'name', undefined, true);
    const errors = [];
    try { pprof.time.start(); } catch (error) { errors.push(error.message); }
    pprof.time.profile({ durationMillis: 1 }).catch((error) => errors.push(error.message));
    (function work() { burn(700, 'work'); })();
    const profile = stop();
    const same = stop() === profile;
    const second = pprof.time.start();
    const buffer = pprof.encodeSync(profile);
    fs.writeFileSync(into('wall.pb.gz'), buffer);
    const between = spanprof.isRunning();
    second();
    setImmediate(() => report({ profile, again: { errors, same, type: profile.stringTable[profile.sampleType[1].type] }, between, after: spanprof.isRunning() }));`);
  assert.deepEqual(again, { errors: ['already profiling', 'already profiling'], same: true, type: 'wall' });
  assert.deepEqual([between, after], [true, false]);
  const text = (index) => profile.stringTable[index];
  assert.deepEqual(profile.sampleType.map(({ type, unit }) => [text(type), text(unit)]), [['sample', 'count'], ['wall', 'microseconds']]);
  assert.deepEqual([text(profile.periodType.type), text(profile.periodType.unit), profile.period], ['wall', 'microseconds', 2000]);
  assert.ok(Math.abs(profile.timeNanos / 1e6 - Date.now()) < 600_000, 'nanoseconds since 1970');
  assertMs('duration', profile.durationNanos / 1e6, burned.work);
  const work = new Set(profile.function.filter(({ name }) => text(name) === 'work').map(({ id }) => id));
  const locations = new Set(profile.location.filter(({ line }) => line.some((frame) => work.has(frame.functionId))).map(({ id }) => id));
  const working = profile.sample.filter(({ locationId }) => locationId.some((id) => locations.has(id)));
  const sum = (samples, type) => samples.reduce((total, { value }) => total + value[type], 0);
  assertMs('work', sum(working, 1) / 1000, burned.work);
  // Each sample stands for at least one interval.
  assert.ok(sum(working, 0) >= working.length);
});

test('a profile beside a running profiler changes nothing of it', (t) => {
  const { burned, folder, read, stats, settings, runs } = run(t, `${REQUIRE}
    const directoryOfFiles = into('files');
    spanprof.start({ serviceName: 'shop', heap: true, destinations: [{ type: 'file', directory: directoryOfFiles }], sampleRate: 99 });
    // 20 MB: the running profiler takes a sample every 512 KiB.
    globalThis.kept = Array.from({ length: 20 }, () => new Array(131_072).fill(0.5));
    (async () => {
      setTimeout(function handler() { burn(600, 'handler'); }, 100);
      pprof.heap.start(4096, 64);
      const profile = await pprof.time.profile({ durationMillis: 1200, intervalMicros: 1000 });
      fs.writeFileSync(into('wall.pb.gz'), await pprof.encode(profile));
      fs.writeFileSync(into('heap.pb.gz'), await pprof.encode(pprof.heap.profile()));
      pprof.heap.stop();
      const stats = spanprof.stats();
      const runs = [spanprof.isRunning()];
      await spanprof.stop();
      runs.push(spanprof.isRunning());
      report({ stats, settings: profile.period, runs });
    })();`);
  assertMs('handler', wallMs(read('wall.pb.gz'), 'handler'), burned.handler);
  assert.ok(read('heap.pb.gz').length > 0, 'objects in use of the running profiler');
  assert.deepEqual([stats['samples.wall'], stats['heap.interval'], runs], [0, 524_288, [true, false]]);
  // The rate of the running profiler.
  assert.equal(settings, Math.round(1e6 / 99));
  const kinds = new Set(fs.readdirSync(path.join(folder, 'files')).map((name) => name.split('-')[0]));
  assert.ok(kinds.has('cpu') && !kinds.has('wall'), [...kinds].join());
});

test('a profile beside a running wall clock has its samples too', (t) => {
  const { burned, folder, read } = run(t, `${REQUIRE}
    spanprof.start({ serviceName: 'shop', heap: false, wall: true, destinations: [{ type: 'file', directory: into('files') }] });
    (async () => {
      (function before() { burn(500, 'before'); })();
      setTimeout(function handler() { burn(600, 'handler'); }, 50);
      fs.writeFileSync(into('wall.pb.gz'), await pprof.encode(await pprof.time.profile({ durationMillis: 1000 })));
      await spanprof.stop();
      report();
    })();`);
  const samples = read('wall.pb.gz');
  assertMs('handler', wallMs(samples, 'handler'), burned.handler);
  assert.ok(wallMs(samples, 'before') < 100, 'the time before the profile is not in it');
  const all = file.readAll(path.join(folder, 'files'), 'wall');
  // Its unit is the nanosecond.
  for (const name of ['before', 'handler']) assertMs(name, wallMs(all, name) / 1000, burned[name]);
});

test('a profiler that the program starts or stops meanwhile continues or ends the profile', (t) => {
  const { burned, folder, read, runs } = run(t, `${REQUIRE}
    const stop = pprof.time.start();
    (function first() { burn(500, 'first'); })();
    spanprof.start({ serviceName: 'shop', heap: false, destinations: [{ type: 'file', directory: into('files') }] });
    (function second() { burn(500, 'second'); })();
    fs.writeFileSync(into('wall.pb.gz'), pprof.encodeSync(stop()));
    const runs = [spanprof.isRunning()];
    const other = pprof.time.start();
    (function third() { burn(500, 'third'); })();
    spanprof.stop().then(() => {
      fs.writeFileSync(into('other.pb.gz'), pprof.encodeSync(other()));
      report({ runs });
    });`);
  assert.deepEqual(runs, [true]);
  const samples = read('wall.pb.gz');
  for (const name of ['first', 'second']) assertMs(name, wallMs(samples, name), burned[name]);
  assertMs('third', wallMs(read('other.pb.gz'), 'third'), burned.third);
  const cpu = file.readAll(path.join(folder, 'files'), 'cpu').flatMap(({ stack }) => stack.map(({ name }) => name));
  assert.ok(cpu.includes('second') && !cpu.includes('first'));
});

test('a profile is written at the exit of the process', (t) => {
  const { burned, read } = run(t, `${REQUIRE}
    const stop = pprof.time.start();
    process.on('exit', () => fs.writeFileSync(into('wall.pb.gz'), pprof.encodeSync(stop())));
    (function work() { burn(600, 'work'); })();
    report();
    process.exit();`);
  assertMs('work', wallMs(read('wall.pb.gz'), 'work'), burned.work);
});

test('a preloaded package profiles the whole run', (t) => {
  const folder = temporaryDirectory(t);
  const { burned, pid } = run(t, `${REQUIRE}
    process.chdir(${JSON.stringify(folder)});
    (function work() { burn(600, 'work'); })();
    report();`, { flags: ['--require', 'spanprof/pprof'] });
  const samples = file.read(path.join(folder, `pprof-profile-${pid}.pb.gz`));
  assertMs('work', wallMs(samples, 'work'), burned.work);
});

test('the profile of a worker thread has its own time only', (t) => {
  const { burned, duration, read } = run(t, `${REQUIRE}
    const { Worker } = require('node:worker_threads');
    spanprof.start({ serviceName: 'shop', heap: false, destinations: [] });
    const worker = new Worker(\`
      const pprof = require('spanprof/pprof');
      const { parentPort } = require('node:worker_threads');
      (async () => {
        // A profile waits 2 s for the drain thread, which first reads the code of both threads.
        await require('spanprof').flush(60);
        const profile = await pprof.time.profile({ durationMillis: 1600 });
        parentPort.postMessage({ bytes: await pprof.encode(profile), duration: profile.durationNanos / 1e6 });
      })();\`, { eval: true });
    const timer = setInterval(function mine() { burn(50, 'mine'); }, 60);
    worker.once('message', async ({ bytes, duration }) => {
      clearInterval(timer);
      fs.writeFileSync(into('wall.pb.gz'), bytes);
      await spanprof.stop();
      report({ duration });
    });`);
  const samples = read('wall.pb.gz');
  assert.ok(burned.mine > 0);
  assert.equal(wallMs(samples, 'mine'), 0);
  assertMs('all', wallMs(samples), duration);
});

const HEAP = `
  const v8 = await import('node:v8');
  const vm = await import('node:vm');
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  // The array object of four words, and a header of two words with 100 doubles.
  const ARRAY_BYTES = 32 + 16 + 800;
  const literal = '[' + Array.from({ length: 100 }, (_, index) => index + '.5').join(', ') + ']';
  const body = '(slots, count) { for (let i = 0; i < count; i++) slots[i % slots.length] = ' + literal + '; }';
  const keepArrays = vm.runInThisContext('(function keepArrays' + body + ')', { filename: '/made/kept.js' });
  const dropArrays = vm.runInThisContext('(function dropArrays' + body + ')', { filename: '/made/dropped.js' });
  const kept = new Array(20_000);

  // The average number of bytes between samples.
  const intervalBytes = 16 * 1024;
  // The maximum stack depth for samples collected.
  const stackDepth = 64;
  const errors = [];
  const attempt = (work) => { try { work(); } catch (error) { errors.push(error.message); } };
  pprof.heap.start(intervalBytes, stackDepth);
  attempt(() => pprof.heap.start(intervalBytes, stackDepth));
  keepArrays(kept, kept.length);
  dropArrays(new Array(256), 30_000);
  gc();
  gc();
  const profile = await pprof.heap.profile();
  const buf = await pprof.encode(profile);
  fs.writeFileSync(into('heap.pb.gz'), buf);
  fs.writeFileSync(into('ignored.pb.gz'), await pprof.encode(pprof.heap.profile('nothing-has-this-path')));
  fs.writeFileSync(into('without.pb.gz'), pprof.encodeSync(pprof.heap.profile('made/kept')));
  const tree = await pprof.heap.v8Profile();
  const bytes = (node) => node.allocations.reduce((sum, { sizeBytes, count }) => sum + sizeBytes * count, 0) + node.children.reduce((sum, child) => sum + bytes(child), 0);
  const find = (node) => node.name === 'keepArrays' ? bytes(node) : node.children.reduce((sum, child) => sum + find(child), 0);
  const period = [profile.period, profile.stringTable[profile.periodType.type], profile.durationNanos];
  const runs = [spanprof.isRunning()];
  const stop = pprof.time.start();
  pprof.heap.stop();
  pprof.heap.stop();
  runs.push(spanprof.isRunning());
  stop();
  runs.push(spanprof.isRunning());
  report({ keptBytes: kept.length * ARRAY_BYTES, interval: intervalBytes, tree: find(tree), root: tree.name, errors, period, runs });
`;

for (const [system, source] of [['CommonJS', `${REQUIRE}\n(async () => {${HEAP}})();`], ['ES modules', `${IMPORT}\n${HEAP}`]]) {
  test(`a heap profile has the known bytes in use, in ${system}`, (t) => {
    const { keptBytes, interval, tree, root, errors, period, runs, read, warnings } = run(t, source);
    // Five standard deviations of bytes sampled at the interval: a run in two million.
    const allowed = 5 * Math.sqrt(keptBytes * interval);
    const bytes = (samples, name) => samples.filter(({ stack }) => stack.some((frame) => frame.name === name)).reduce((sum, { values }) => sum + values.space, 0);
    for (const name of ['heap.pb.gz', 'ignored.pb.gz']) {
      const samples = read(name);
      assert.deepEqual(Object.keys(samples[0].values), ['objects', 'space']);
      const of = (name) => bytes(samples, name);
      assert.ok(Math.abs(of('keepArrays') - keptBytes) < allowed, `${of('keepArrays')} bytes, really ${keptBytes} ± ${allowed}`);
      assert.ok(of('dropArrays') < 0.05 * keptBytes, 'dropped objects are not in use');
    }
    assert.ok(Math.abs(tree - keptBytes) < allowed, `${tree} bytes in the tree`);
    assert.equal(root, '(root)');
    assert.equal(bytes(read('without.pb.gz'), 'keepArrays'), 0, 'samples of a path are left out');
    assert.deepEqual(period, [interval, 'space', undefined].map((value) => value ?? null));
    assert.deepEqual(errors, [
      `Heap profiler is already started with intervalBytes ${interval} and stackDepth 64`,
    ]);
    assert.deepEqual(runs, [true, true, false], 'the temporary profiler ends with its last use');
    assert.equal(warnings, '');
  });
}

test('a heap profile without heap.start starts it, and a later heap.start continues it at its own interval', (t) => {
  const { periods, kept, runs } = run(t, `${REQUIRE}
    const keep = () => Array.from({ length: 64 }, () => new Array(32 * 1024).fill(0.5));
    const first = pprof.heap.profile();
    const arrays = keep();
    const second = pprof.heap.profile();
    const bytes = second.sample.reduce((sum, { value }) => sum + Number(value[1]), 0);
    pprof.heap.start(4096, 64);
    const third = pprof.heap.profile();
    const runs = [spanprof.isRunning()];
    pprof.heap.stop();
    runs.push(spanprof.isRunning());
    report({ periods: [first, second, third].map(({ period }) => Number(period)), kept: bytes / (arrays.length * 8 * 32 * 1024), runs });
  `);
  assert.deepEqual(periods, [524_288, 524_288, 4096]);
  // Of 16 MiB at 512 KiB, within five standard deviations.
  assert.ok(kept > 0.1 && kept < 1.9, `${kept} of the bytes`);
  assert.deepEqual(runs, [true, false]);
});

test('a heap profile without the heap profile of the running profiler is empty, and one warning names the reason', (t) => {
  const { empty, warnings } = run(t, `${REQUIRE}
    spanprof.start({ serviceName: 'shop', heap: false, destinations: [] });
    pprof.heap.start(4096, 64);
    const empty = [pprof.heap.profile(), pprof.heap.profile()].map((profile) => profile.sample.length);
    report({ empty });
    spanprof.stop();`);
  assert.deepEqual(empty, [0, 0]);
  assert.equal(warnings.match(/heap: true/g)?.length, 1, warnings);
});

test('under a kill switch profiles are empty', (t) => {
  const { read, runs } = run(t, `${REQUIRE}
    (async () => {
      pprof.heap.start(4096, 64);
      const stop = pprof.time.start();
      const runs = spanprof.isRunning();
      burn(50, 'work');
      fs.writeFileSync(into('wall.pb.gz'), pprof.encodeSync(stop()));
      fs.writeFileSync(into('heap.pb.gz'), await pprof.encode(pprof.heap.profile()));
      pprof.heap.stop();
      report({ runs });
    })();`, { variables: { SPANPROF_DISABLED: '1' } });
  assert.deepEqual([runs, read('wall.pb.gz'), read('heap.pb.gz')], [false, [], []]);
});

test('profiles that a program changed or made itself are encoded', (t) => {
  const { read, mapper } = run(t, `${REQUIRE}
    (async () => {
      const sourceMapper = await pprof.SourceMapper.create(['.']);
      pprof.setLogger({ info() {}, warn() {} });
      const made = {
        sampleType: [{ type: 1, unit: 2 }],
        sample: [{ locationId: [1], value: [2 ** 40], label: [{ key: 3, num: 300 }, { key: 4, str: 5 }] }, { locationId: [1, 2], value: [{ low: -1, high: 1 }] }, { locationId: [2], value: [7n] }],
        location: [{ id: 1, line: [{ functionId: 1, line: 12 }] }, { id: 2, line: [{ functionId: 2, line: 400 }] }],
        function: [{ id: 1, name: 5, filename: 6 }, { id: 2, name: 6, filename: 6 }],
        stringTable: ['', 'a', 'b', 'size', 'key', 'näme', 'file.js'],
        timeNanos: Date.now() * 1e6, durationNanos: null,
      };
      fs.writeFileSync(into('made.pb.gz'), await pprof.encode(made));
      const profile = await pprof.time.profile({ durationMillis: 20, sourceMapper });
      profile.stringTable.push('added', 'value');
      profile.sample[0].label = [{ key: profile.stringTable.length - 2, str: profile.stringTable.length - 1 }];
      fs.writeFileSync(into('changed.pb.gz'), pprof.encodeSync(profile));
      report({ mapper: [sourceMapper.hasMappingInfo('a.js'), sourceMapper.mappingInfo({ file: 'a.js' }).file] });
    })();`);
  const [first, second, third] = read('made.pb.gz');
  assert.deepEqual(first, {
    values: { a: 2 ** 40 }, labels: { size: 300, key: 'näme' }, stack: [{ name: 'näme', file: 'file.js', line: 12, column: 0 }],
  });
  assert.deepEqual([second.values.a, second.stack.map(({ line }) => line), third.values.a], [2 ** 33 - 1, [12, 400], 7]);
  assert.equal(read('changed.pb.gz')[0].labels.added, 'value');
  assert.deepEqual(mapper, [false, 'a.js']);
});
