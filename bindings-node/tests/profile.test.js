'use strict';
// Profiles of programs whose results are known: shares of CPU time, and the labels of each sample.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const pprof = require('./pprof_file.js');
const { program, runNode } = require('./run_node.js');

const MAJOR = Number(process.versions.node.split('.')[0]);

/** Runs a program under the profiler; returns its output, its warnings, and its CPU samples. */
function profiled(t, name, ...args) {
  return profiledWith(t, [], name, ...args);
}

function profiledWith(t, flags, name, ...args) {
  const { stdout, warnings, folder } = runNode(t, [...flags, program(name)], args);
  return { output: JSON.parse(stdout), warnings, samples: pprof.readAll(folder, 'cpu'), folder };
}

const names = (sample) => sample.stack.map((frame) => frame.name);

test('shares of three functions are those of their CPU time', (t) => {
  const { output, samples } = profiled(t, 'shares.js', '2');
  const sampled = { half: 0, third: 0, fifth: 0 };
  let all = 0;
  for (const sample of samples) {
    all += sample.values.cpu;
    const burner = names(sample).find((name) => Object.hasOwn(sampled, name));
    if (burner !== undefined) sampled[burner] += sample.values.cpu;
  }
  const burnt = output.took.half + output.took.third + output.took.fifth;
  const shown = sampled.half + sampled.third + sampled.fifth;
  for (const name of Object.keys(sampled)) {
    const [is, expected] = [sampled[name] / shown, output.took[name] / burnt];
    // Five standard errors of a share among 200 samples: the program's CPU time at 100 Hz.
    const allowed = 5 * Math.sqrt(expected * (1 - expected) / 200) + output.own / burnt;
    assert.ok(Math.abs(is - expected) < allowed, `${name}: ${is.toFixed(3)}, really ${expected.toFixed(3)} ± ${allowed.toFixed(3)}`);
  }
  // A sample in the code around the functions takes its weight from them, and the reverse.
  const allowed = 0.1 * output.total;
  assert.ok(shown > burnt - output.own - allowed && shown < burnt + allowed, `${shown / 1e6} ms shown of ${burnt / 1e6} ms`);
  assert.ok(all >= shown);
});

// Node.js 22 has AsyncContextFrame behind a flag.
for (const flags of MAJOR === 22 ? [[], ['--experimental-async-context-frame']] : [[]]) {
  test(`each sample of a thousand interleaved requests carries its own labels and span${flags.map((flag) => ` with ${flag}`)}`, (t) => {
    const { output, samples } = profiledWith(t, flags, 'requests.js', '1200');
    assert.equal(output.threads > 0, MAJOR >= 24 || flags.length > 0, 'the handler reads the storage of AsyncContextFrame');
    const ofFunction = { burnTea: 'tea', burnMilk: 'milk', burnRum: 'rum' };
    const traceOf = { tea: '1', milk: '2', rum: '3' };
    const counts = { correct: 0, without: 0, wrong: 0 };
    for (const sample of samples) {
      const name = names(sample).find((frame) => Object.hasOwn(ofFunction, frame));
      if (name === undefined) continue;
      const { kind, trace_id: trace, span_id: span } = sample.labels;
      if (kind === undefined && trace === undefined) counts.without++;
      else if (kind === ofFunction[name] && trace === traceOf[kind].padStart(32, 'a') && /^b+[0-9a-f]+$/.test(span)) counts.correct++;
      else counts.wrong++;
    }
    assert.equal(counts.wrong, 0, JSON.stringify(counts));
    assert.ok(counts.correct > 50, JSON.stringify(counts));
    assert.ok(counts.without <= 0.005 * (counts.correct + counts.without), JSON.stringify(counts));
  });
}

test('a block of the event loop is reported with its length, stack, labels and span', (t) => {
  const { output, folder } = profiled(t, 'blocks.js');
  const samples = pprof.readAll(folder, 'event_loop_lag');
  const sum = (some) => some.reduce((sum, sample) => sum + sample.values.event_loop_lag, 0);
  const ofName = (name) => samples.filter((sample) => names(sample).includes(name));
  for (const [name, trace, cpu] of [['blockLong', '1', 150e6], ['blockShort', '2', 90e6]]) {
    const blocks = ofName(name);
    for (const { labels } of blocks) assert.deepEqual([labels.kind, labels.trace_id], [name, trace.padStart(32, 'c')]);
    // A sample in the code around the function takes about a tenth.
    assert.ok(sum(blocks) > 0.7 * cpu && sum(blocks) < output.took[name][2] + 1e6, `${name}: ${sum(blocks) / 1e6} ms of ${output.took[name]}`);
  }
  // On a busy machine even this one may take longer than the threshold.
  if (output.took.blockNot[1] < 50e6) assert.deepEqual(ofName('blockNot'), []);
  waitsHaveTheirStacks(samples, output);
  // The parts add up to the blocks, except for a millisecond each, the difference of two clocks; the start may be a block, too.
  const least = ['blockLong', 'blockShort', 'wait', 'runProgram'].reduce((sum, name) => sum + output.took[name][0], 0);
  const parts = () => JSON.stringify(samples.map((sample) => [sample.values.event_loop_lag / 1e6, names(sample).slice(0, 9), sample.labels.kind]));
  assert.ok(sum(samples) > least - 3e6, `${sum(samples) / 1e6} ms, really at least ${least / 1e6} ${JSON.stringify(output)} ${parts()}`);
  assert.ok(output.loop['runtime.node.loop_blocks'] >= 3);
});

/** The blocks off the CPU of blocks.js, with labels and span. */
function waitsHaveTheirStacks(samples, output) {
  for (const [name, trace] of [['wait', '4'], ['runProgram', '5']]) {
    const waits = samples.filter((sample) => names(sample).includes(name));
    for (const { labels } of waits) assert.deepEqual([labels.kind, labels.trace_id], [name, trace.padStart(32, 'c')]);
    const sum = waits.reduce((sum, sample) => sum + sample.values.event_loop_lag, 0);
    assert.ok(sum > 0.75 * output.took[name][0], `${name}: ${sum / 1e6} ms of ${output.took[name]}`);
    assert.ok(sum < output.took[name][1] + 20e6, `${name}: ${sum / 1e6} ms of ${output.took[name]}`);
  }
}

test('a loop without blocks causes no request for its stack, and no wakeup while it is idle', (t) => {
  const { output } = profiled(t, 'unblocked.js');
  // On a busy machine a turn may be a block.
  if (output.blocks === 0) assert.equal(output.walks, 0, JSON.stringify(output));
  // Each of two turns causes three wakeups at most.
  assert.ok(output.after - output.before <= 8, JSON.stringify(output));
});

test('each pause for garbage collection has its type, its cause and its duration, and no labels', (t) => {
  const { output, folder } = profiled(t, 'collections.js');
  const samples = pprof.readAll(folder, 'gc');
  const sum = (name) => samples.filter((sample) => names(sample).includes(name)).reduce((sum, { values }) => sum + values.gc, 0);
  for (const sample of samples) {
    const [cause, type, last] = names(sample);
    assert.deepEqual([last, sample.stack.length, sample.labels], ['[GC]', 3, { 'service.name': 'collections' }]);
    assert.match(`${cause} ${type}`, /^\[(automatic|requested|low memory|external memory)\] \[(scavenge|mark-compact|incremental marking start|weak callbacks)\]$/);
  }
  // Node.js's constants of the types. Both sides measure elapsed time, between different callbacks.
  for (const [name, kind] of [['[mark-compact]', 4], ['[scavenge]', 1]]) {
    const [is, expected] = [sum(name), output.observed[kind]];
    assert.ok(Math.abs(is - expected) < 0.25 * expected + 20e6, `${name}: ${is / 1e6} ms, observed ${expected / 1e6} ms`);
  }
  assert.ok(sum('[requested]') > 0.7 * sum('[mark-compact]'), `${sum('[requested]') / 1e6} ms requested`);
  assert.equal(fs.readdirSync(folder).filter((name) => name.startsWith('gc-')).length, output.files, 'off by `gc: false`');
});

test('a waiting block has its stack, labels and span when the wall clock samples', (t) => {
  const { output, folder } = profiled(t, 'blocks.js', 'wall');
  const samples = pprof.readAll(folder, 'event_loop_lag');
  waitsHaveTheirStacks(samples, output);
  // In the wall-clock profile the wait for a program belongs to its caller, not to an idle loop.
  const wall = pprof.readAll(folder, 'wall').filter((sample) => names(sample).includes('runProgram'));
  assert.ok(wall.reduce((sum, sample) => sum + sample.values.wall, 0) > 100e6);
});

test('a worker\'s frames have its functions and builtins, also after a stop and a start', (t) => {
  const { output, samples, folder } = profiled(t, 'worker.js', 'on');
  for (const [round, sampled] of [['first', samples], ['second', pprof.readAll(path.join(folder, 'second'), 'cpu')]]) {
    const stacks = sampled.map(names);
    for (const burner of ['burnInMain', 'burnInWorker']) {
      const within = stacks.filter((stack) => stack.includes(burner));
      assert.ok(within.length > 0, `${round}: ${burner} is missing`);
      assert.ok(within.some((stack) => stack.includes('Array.from')), `${round}: no built-in code in ${burner}`);
    }
  }
  // Code outlives the samples taken in it, and the frames of a long turn are resolved at their own positions.
  assert.deepEqual(output.losses, [0, 0]);
});

test('workers are not profiled when workerThreads is off, and the main thread is', (t) => {
  const { samples } = profiled(t, 'worker.js', 'off');
  const stacks = samples.map(names);
  assert.ok(stacks.some((stack) => stack.includes('burnInMain')));
  assert.deepEqual(stacks.filter((stack) => stack.includes('burnInWorker')), []);
});

test('the wall clock has work, blocks and idle time, each with its labels', (t) => {
  const { output, folder } = profiled(t, 'waits.js');
  const samples = pprof.readAll(folder, 'wall');
  const shown = (name) => {
    const some = samples.filter((sample) => names(sample).includes(name));
    return { some, milliseconds: some.reduce((sum, sample) => sum + sample.values.wall, 0) / 1e6 };
  };
  // The program may take longer than requested, never shorter. Observations at random times, of which a busy machine allows fewer, miss
  // it by a few intervals. The phase after an idle time misses up to the longest interval.
  const missed = 6 * (output.took / output.samples) + 250;
  for (const [name, least] of [['work', 300], ['block', 500], ['(idle)', 700]]) {
    assert.ok(shown(name).milliseconds > least - missed, `${name}: ${shown(name).milliseconds} ms of ${least}, ± ${missed}`);
  }
  for (const name of ['work', 'block']) {
    const correct = shown(name).some.filter((sample) => sample.labels.kind === name);
    assert.equal(correct.length, shown(name).some.length, name);
  }
});

test('V8\'s compiler and collector and libuv\'s pool have frames of their own', (t) => {
  const { samples } = profiled(t, 'threads.js');
  const stacks = samples.map(names);
  const below = (marker, name) => stacks.filter((stack) => stack.includes(marker) && stack.indexOf(marker) < stack.indexOf(name));
  assert.ok(below('(compiler)', 'makeCode').length > 0, 'no compiler in makeCode');
  assert.ok(below('(garbage collector)', 'makeGarbage').length > 0, 'no collector in makeGarbage');
  const ofThread = (name) => stacks.filter((stack) => stack.at(-1) === `[thread ${name}]`);
  assert.ok(ofThread('libuv-worker').length > 0, 'no pool thread');
  assert.ok(ofThread('V8Worker').length > 0, 'no thread of V8');
  // Functions that submit work to the pool, and that handle its result, run on a JavaScript thread.
  const ofPool = (stack) => stack.join().includes('DoThreadPoolWork');
  assert.ok(stacks.some(ofPool), 'no work of the pool');
  assert.deepEqual(stacks.filter((stack) => ofPool(stack) && stack.at(-1) !== '[thread libuv-worker]'), []);
  assert.deepEqual(stacks.filter((stack) => stack.join().includes('JobTask') && /^.thread/.test(stack.at(-1)) && stack.at(-1) !== '[thread V8Worker]'), []);
});

const hasSqlite = require('node:module').builtinModules.includes('node:sqlite');
for (const mode of ['defaults', 'wall']) {
  // A signal would end a nap early; restarted naps would take any time.
  test(`a wait of the program takes its time with ${mode}`, { skip: !hasSqlite && 'without node:sqlite' }, (t) => {
    const { output } = profiled(t, 'busy_timeout.js', mode);
    assert.equal(output.refused, 'database is locked');
    assert.ok(output.milliseconds > 990 && output.milliseconds < 3000, `${output.milliseconds} ms of 1000`);
  });
}

test('no thread of the profiler wakes up while the process idles', (t) => {
  const { output } = profiled(t, 'idle.js');
  // The timers of the program itself may use enough CPU for a sample, which opens a window that is closed and sent.
  const quietest = Math.min(...output.rounds.map((woken) => {
    assert.ok(woken.length >= 2, JSON.stringify(output));
    // The watcher of event loops sleeps twice for each turn of the package's own timer, of which a round has two.
    return Math.max(...woken.map(([name, times]) => (name === 'spanprof-loops' ? times - 2 : times)));
  }));
  // One check of the clocks in each window of a second.
  assert.ok(quietest <= 3, `woken in rounds of 2 s: ${JSON.stringify(output.rounds)}`);
});

test('the wall clock lets an idle process sleep', (t) => {
  const { output } = profiled(t, 'idle.js', 'wall');
  const [, looks] = output.rounds[0].find(([name]) => name === 'spanprof-wall');
  assert.ok(looks > 0 && looks <= 20 * output.seconds, `${looks} looks in ${output.seconds} s`);
});

test('the self-test selects the walk along frame pointers in this Node.js', (t) => {
  const { output, warnings, samples } = profiled(t, 'walks.js', 'auto');
  assert.deepEqual([output.running, output.walk, output.differing, warnings], [true, 'own', '', []]);
  assert.ok(output.byOwn > output.byV8, JSON.stringify(output));
  assert.ok(samples.some((sample) => names(sample).join().includes('burnInside,burnOutside')));
});

const FALLBACKS = [
  ['our own walk fails the self-test', ['auto', 'v8'], 'v8', 1],
  ["V8's walk is asked for", ['v8'], 'v8', 0],
];
for (const [when, args, walk, warned] of FALLBACKS) {
  test(`where ${when}, the method is ${walk} in stats() and in ${warned} warnings`, (t) => {
    const { output, warnings, samples } = profiled(t, 'walks.js', ...args);
    assert.deepEqual([output.running, output.walk], [true, walk]);
    assert.equal(warnings.length, warned, warnings.join());
    const burning = samples.filter((sample) => names(sample).includes('burnInside'));
    const within = burning.filter((sample) => names(sample).join().includes('burnInside,burnOutside'));
    const sum = (some) => some.reduce((sum, sample) => sum + sample.values.cpu, 0) / 1e6;
    // Of 400 ms of the process; on a busy machine most of it may belong to the threads of V8 and the profiler.
    assert.ok(sum(within) > 80 && sum(within) === sum(burning), `${sum(within)} of ${sum(burning)} ms`);
    assert.deepEqual([output.byOwn ?? 0, output.ended], [0, 0]);
  });
}

test('where no walk passes the self-test, one warning names the runtime and nothing is sampled', (t) => {
  const { output, warnings, samples } = profiled(t, 'walks.js', 'auto', 'none');
  assert.deepEqual([output.running, samples], [false, []]);
  assert.equal(warnings.length, 1, warnings.join());
  const expected = `spanprof: this process is not profiled: Node.js ${process.version}: stacks cannot be walked; use a Node.js 18 or later`;
  assert.ok(warnings[0].includes(expected), warnings[0]);
});
