'use strict';
// Other profilers in the same process: V8's, enabled by flags, and the inspector. No profiler loses samples.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { once } = require('node:events');
const { spawn, spawnSync } = require('node:child_process');
const timers = require('node:timers/promises');
const inspector = require('./inspector_client.js');
const pprof = require('./pprof_file.js');
const { temporaryDirectory } = require('./run_node.js');

const PROGRAM = path.join(__dirname, 'programs', 'coexists.js');

/** CPU time of spanprof's samples in the burning function, in milliseconds. */
function sampledMs(folder) {
  const burning = pprof.readAll(folder, 'cpu').filter((sample) => sample.stack.some((frame) => frame.name === 'burnAndMake'));
  return burning.reduce((sum, sample) => sum + sample.values.cpu, 0) / 1e6;
}

const ONLY_THE_OUTCOME = /^spanprof: stopped after [^\n]*\n$/;
/** The main thread burns 500 ms in it. Samples in the other profiler's code do not contain it. */
const assertComplete = (folder) => assert.ok(sampledMs(folder) > 400, `${sampledMs(folder)} ms of 500`);

for (const [flag, kind, namesOf] of [
  ['--cpu-prof', '.cpuprofile', (profile) => profile.nodes.map((node) => node.callFrame.functionName)],
  ['--heap-prof', '.heapprofile', (profile) => JSON.stringify(profile.head).match(/"functionName":"[^"]*"/g).map((text) => text.slice(16, -1))],
]) {
  test(`${flag} writes its profile while spanprof samples`, (t) => {
    const folder = temporaryDirectory(t);
    const done = spawnSync(process.execPath, [flag, `${flag}-dir=${folder}/v8`, PROGRAM, folder], { encoding: 'utf8', timeout: 180_000 });
    assert.equal(done.status, 0, done.stderr);
    assert.match(done.stderr, ONLY_THE_OUTCOME);
    const [file] = fs.readdirSync(path.join(folder, 'v8')).filter((name) => name.endsWith(kind));
    const names = namesOf(JSON.parse(fs.readFileSync(path.join(folder, 'v8', file), 'utf8')));
    assert.ok(names.includes('burnAndMake'), names.join());
    assertComplete(folder);
  });
}

test('an inspector session in the process profiles while spanprof samples', (t) => {
  const folder = temporaryDirectory(t);
  const done = spawnSync(process.execPath, [PROGRAM, folder, 'session'], { encoding: 'utf8', timeout: 180_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stderr, ONLY_THE_OUTCOME);
  assert.ok(JSON.parse(done.stdout).seen.includes('burnAndMake'));
  assertComplete(folder);
});

test('an attached debugger evaluates and profiles while spanprof samples', { timeout: 180_000 }, async (t) => {
  const folder = temporaryDirectory(t);
  const child = spawn(process.execPath, ['--inspect=127.0.0.1:0', PROGRAM, folder, 'attached']);
  t.after(() => child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let output = '';
  while (!output.includes('\n')) output += (await once(child.stderr, 'data'))[0];
  const debug = await inspector.connect(/ws:\S+/.exec(output)[0]);
  try {
    const program = () => debug.send('Runtime.evaluate', { expression: 'typeof burnAndMake' });
    while ((await program()).result.value !== 'function') await timers.setTimeout(20);
    await debug.send('Profiler.enable');
    await debug.send('Profiler.start');
    const burnt = await debug.send('Runtime.evaluate', { expression: 'burnAndMake(500)' });
    assert.equal(burnt.result.type, 'number', JSON.stringify(burnt));
    const { profile } = await debug.send('Profiler.stop');
    assert.ok(profile.nodes.some((node) => node.callFrame.functionName === 'burnAndMake'));
  } finally {
    debug.close();
  }
  child.stdin.end('end\n');
  assert.deepEqual(await ended, [0, null]);
  assertComplete(folder);
});
