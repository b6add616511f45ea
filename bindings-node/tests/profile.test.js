'use strict';
// Programs whose truth is known, profiled into files: shares of CPU time, and whose work each sample says it is.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const pprof = require('./pprof_file.js');

/** Runs a program under the profiler; what it printed, its warnings, and its CPU samples. */
function profiled(t, name, ...words) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-profile-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const program = path.join(__dirname, 'programs', name);
  const done = spawnSync(process.execPath, [program, folder, ...words], { encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  const warnings = done.stderr.split('\n').filter((line) => line.includes('SpanprofWarning'));
  return { said: JSON.parse(done.stdout), warnings, samples: pprof.readAll(folder, 'cpu'), folder };
}

const names = (sample) => sample.stack.map((frame) => frame.name);

test('shares of three functions are what they really burnt', (t) => {
  const { said, samples } = profiled(t, 'shares.js', '1');
  const seen = { half: 0, third: 0, fifth: 0 };
  let all = 0;
  for (const sample of samples) {
    all += sample.values.cpu;
    const burner = names(sample).find((name) => Object.hasOwn(seen, name));
    if (burner !== undefined) seen[burner] += sample.values.cpu;
  }
  const burnt = said.took.half + said.took.third + said.took.fifth;
  const found = seen.half + seen.third + seen.fifth;
  for (const name of Object.keys(seen)) {
    const [is, should] = [seen[name] / found, said.took[name] / burnt];
    // Four standard errors of a share among 100 samples, which is what the program's CPU time has at 100 Hz.
    const allowed = 4 * Math.sqrt(should * (1 - should) / 100) + said.own / burnt;
    assert.ok(Math.abs(is - should) < allowed, `${name}: ${is.toFixed(3)}, really ${should.toFixed(3)} ± ${allowed.toFixed(3)}`);
  }
  // A sample in what surrounds the functions takes its share from them, and one in them takes it from that.
  const allowed = 0.1 * said.total;
  assert.ok(found > burnt - said.own - allowed && found < burnt + allowed, `${found / 1e6} ms shown of ${burnt / 1e6} ms`);
  assert.ok(all >= found);
});

test('each sample of a thousand requests that take turns carries its own labels and span', (t) => {
  const { samples } = profiled(t, 'requests.js', '1200');
  const ofFunction = { burnTea: 'tea', burnMilk: 'milk', burnRum: 'rum' };
  const traceOf = { tea: '1', milk: '2', rum: '3' };
  const counts = { right: 0, without: 0, wrong: 0 };
  for (const sample of samples) {
    const name = names(sample).find((frame) => Object.hasOwn(ofFunction, frame));
    if (name === undefined) continue;
    const { kind, trace_id: trace, span_id: span } = sample.labels;
    if (kind === undefined && trace === undefined) counts.without++;
    else if (kind === ofFunction[name] && trace === traceOf[kind].padStart(32, 'a') && /^b+[0-9a-f]+$/.test(span)) counts.right++;
    else counts.wrong++;
  }
  assert.equal(counts.wrong, 0, JSON.stringify(counts));
  assert.ok(counts.right > 50, JSON.stringify(counts));
  assert.ok(counts.without <= 0.005 * (counts.right + counts.without), JSON.stringify(counts));
});

test('a block of the event loop is reported with its length, stack, labels and span', (t) => {
  const { said, folder } = profiled(t, 'blocks.js');
  const samples = pprof.readAll(folder, 'event_loop_lag');
  const sum = (some) => some.reduce((sum, sample) => sum + sample.values.event_loop_lag, 0);
  const ofName = (name) => samples.filter((sample) => names(sample).includes(name));
  for (const [name, trace, cpu] of [['blockLong', '1', 150e6], ['blockShort', '2', 90e6]]) {
    const own = ofName(name);
    for (const { labels } of own) assert.deepEqual([labels.kind, labels.trace_id], [name, trace.padStart(32, 'c')]);
    // A sample in what surrounds the function takes a share, of ten or so.
    assert.ok(sum(own) > 0.7 * cpu && sum(own) < said.took[name][1] + 1e6, `${name}: ${sum(own) / 1e6} ms of ${said.took[name]}`);
  }
  // On a busy machine even this one may take as long as a block.
  if (said.took.blockNot[1] < 50e6) assert.deepEqual(ofName('blockNot'), []);
  const waited = sum(ofName('(not on the CPU)'));
  assert.ok(waited > 100e6, `of 120 ms of waiting ${waited / 1e6}`);
  // All parts together are no less than the blocks, a millisecond each for two clocks; starting may be one, too.
  const least = ['blockLong', 'blockShort', 'wait', 'runProgram'].reduce((sum, name) => sum + said.took[name][0], 0);
  assert.ok(sum(samples) > least - 3e6, `${sum(samples) / 1e6} ms, really at least ${least / 1e6}`);
  assert.ok(said.loop['runtime.node.loop_blocks'] >= 3);
});

test('a block that waits has the stack, the labels and the span of the wait where the wall clock samples', (t) => {
  const { said, folder } = profiled(t, 'blocks.js', 'wall');
  const samples = pprof.readAll(folder, 'event_loop_lag');
  const sum = (some) => some.reduce((sum, sample) => sum + sample.values.event_loop_lag, 0);
  for (const [name, trace] of [['wait', '4'], ['runProgram', '5']]) {
    const own = samples.filter((sample) => names(sample).includes(name));
    for (const { labels } of own) assert.deepEqual([labels.kind, labels.trace_id], [name, trace.padStart(32, 'c')]);
    assert.ok(sum(own) > 0.75 * said.took[name][0], `${name}: ${sum(own) / 1e6} ms of ${said.took[name]}`);
    assert.ok(sum(own) < said.took[name][1] + 20e6, `${name}: ${sum(own) / 1e6} ms of ${said.took[name]}`);
  }
  // The wall-clock profile shows the wait for a program as its caller too, not as an idle loop.
  const wall = pprof.readAll(folder, 'wall').filter((sample) => names(sample).includes('runProgram'));
  assert.ok(wall.reduce((sum, sample) => sum + sample.values.wall, 0) > 100e6);
});

test('a worker is known by its functions and the built-in ones, also after a stop and a start', (t) => {
  const { said, samples, folder } = profiled(t, 'worker.js', 'on');
  for (const [round, seen] of [['first', samples], ['second', pprof.readAll(path.join(folder, 'second'), 'cpu')]]) {
    const stacks = seen.map(names);
    for (const burner of ['burnInMain', 'burnInWorker']) {
      const within = stacks.filter((stack) => stack.includes(burner));
      assert.ok(within.length > 0, `${round}: ${burner} is missing`);
      assert.ok(within.some((stack) => stack.includes('ArrayFrom')), `${round}: no built-in code in ${burner}`);
    }
  }
  // Code outlives the samples that were taken in it, and frames of a long turn are named by what lay there when they were seen.
  assert.deepEqual(said.losses, [0, 0]);
});

test('workers are left alone when they are switched off, and the main thread is not', (t) => {
  const { samples } = profiled(t, 'worker.js', 'off');
  const stacks = samples.map(names);
  assert.ok(stacks.some((stack) => stack.includes('burnInMain')));
  assert.deepEqual(stacks.filter((stack) => stack.includes('burnInWorker')), []);
});

test('the wall clock shows work, blocks and idle time, each with its labels', (t) => {
  const { said, folder } = profiled(t, 'waits.js');
  const samples = pprof.readAll(folder, 'wall');
  const shown = (name) => {
    const some = samples.filter((sample) => names(sample).includes(name));
    return { some, milliseconds: some.reduce((sum, sample) => sum + sample.values.wall, 0) / 1e6 };
  };
  // The program may take longer than it asked for, never shorter; looks at random times, of which a busy machine allows
  // fewer, miss it by a few of the times between two. What follows an idle time misses up to the longest of them.
  const missed = 6 * (said.took / said.samples) + 250;
  for (const [name, least] of [['work', 300], ['block', 500], ['(idle)', 700]]) {
    assert.ok(shown(name).milliseconds > least - missed, `${name}: ${shown(name).milliseconds} ms of ${least}, ± ${missed}`);
  }
  for (const name of ['work', 'block']) {
    const right = shown(name).some.filter((sample) => sample.labels.kind === name);
    assert.equal(right.length, shown(name).some.length, name);
  }
});

test('what V8 compiles and collects and what the pool of libuv does is shown as such', (t) => {
  const { samples } = profiled(t, 'threads.js');
  const stacks = samples.map(names);
  const below = (marker, name) => stacks.filter((stack) => stack.includes(marker) && stack.indexOf(marker) < stack.indexOf(name));
  assert.ok(below('(compiler)', 'makeCode').length > 0, 'no compiler in makeCode');
  assert.ok(below('(garbage collector)', 'makeGarbage').length > 0, 'no collector in makeGarbage');
  const ofThread = (name) => stacks.filter((stack) => stack.at(-1) === `[thread ${name}]`);
  assert.ok(ofThread('libuv-worker').length > 0, 'no pool thread');
  assert.ok(ofThread('V8Worker').length > 0, 'no thread of V8');
  // Who hands work over to the pool is on a thread of JavaScript's.
  const ofPool = (stack) => stack.join().includes('ThreadPoolWork') && !stack.includes('node::ThreadPoolWork::ScheduleWork');
  assert.ok(stacks.some(ofPool), 'no work of the pool');
  assert.deepEqual(stacks.filter((stack) => ofPool(stack) && stack.at(-1) !== '[thread libuv-worker]'), []);
  assert.deepEqual(stacks.filter((stack) => stack.join().includes('JobTask') && /^.thread/.test(stack.at(-1)) && stack.at(-1) !== '[thread V8Worker]'), []);
});

test('nothing of ours wakes up while the process idles', (t) => {
  const { said } = profiled(t, 'idles.js');
  assert.ok(said.woken.length >= 2, JSON.stringify(said));
  // Looking is the one thing that happens: a sample of it opens a window, which is closed, sent and answered.
  for (const [name, times] of said.woken) assert.ok(times <= 4, `${name} woke up ${times} times in 2 s`);
});

test('the wall clock lets a process sleep that idles', (t) => {
  const { said } = profiled(t, 'idles.js', 'wall');
  const [, looks] = said.woken.find(([name]) => name === 'spanprof-wall');
  assert.ok(looks > 0 && looks <= 20 * said.seconds, `${looks} looks in ${said.seconds} s`);
});

test('the self-test finds our own walk in this Node', (t) => {
  const { said, warnings, samples } = profiled(t, 'walks.js', 'auto');
  assert.deepEqual([said.running, said.walk, said.differing, warnings], [true, 'own', '', []]);
  assert.ok(said.byOwn > said.byV8, JSON.stringify(said));
  assert.ok(samples.some((sample) => names(sample).join().includes('burnInside,burnOutside')));
});

const FALLBACKS = [
  ['our own walk fails the self-test', ['auto', 'v8'], 'v8', 1],
  ['no walk passes the self-test', ['auto', 'none'], 'inspector', 1],
  ["V8's walk is asked for", ['v8'], 'v8', 0],
  ['the inspector is asked for', ['inspector'], 'inspector', 0],
];
for (const [when, words, walk, warned] of FALLBACKS) {
  test(`where ${when}, the means is ${walk}, in stats() and in ${warned} warnings`, (t) => {
    const { said, warnings, samples } = profiled(t, 'walks.js', ...words);
    assert.deepEqual([said.running, said.walk], [true, walk]);
    assert.equal(warnings.length, warned, warnings.join());
    const burning = samples.filter((sample) => names(sample).includes('burnInside'));
    const within = burning.filter((sample) => names(sample).join().includes('burnInside,burnOutside'));
    const sum = (some) => some.reduce((sum, sample) => sum + sample.values.cpu, 0) / 1e6;
    // Of 400 ms of the process; on a busy machine most of it may be V8's and our own threads'.
    assert.ok(sum(within) > 80 && sum(within) === sum(burning), `${sum(within)} of ${sum(burning)} ms`);
    assert.deepEqual([said.byOwn ?? 0, said.ended], [0, 0]);
  });
}
