'use strict';
// The documented snippets of `@pyroscope/nodejs` with the import renamed, and their effect.

const test = require('node:test');
const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const Pyroscope = require('spanprof/pyroscope');
const { temporaryDirectory } = require('./run_node.js');

const NAMES = [
  'init', 'start', 'stop', 'startWallProfiling', 'startCpuProfiling', 'startHeapProfiling', 'stopWallProfiling',
  'stopCpuProfiling', 'stopHeapProfiling', 'getLabels', 'setLabels', 'getWallLabels', 'setWallLabels', 'wrapWithLabels',
  'setLogger', 'SourceMapper', 'expressMiddleware', 'fastifyMiddleware',
];

/** The configuration in `stats()` of a process that runs `source` with these variables. */
function settings(t, source, variables = {}) {
  const folder = temporaryDirectory(t);
  const program = `const Pyroscope = require('spanprof');
    (async () => { ${source}
      const stats = require('spanprof').stats();
      await Pyroscope.stop();
      console.log(JSON.stringify(stats)); })();`;
  const env = { PATH: process.env.PATH, SPANPROF_FILE_DIRECTORY: folder, ...variables };
  return JSON.parse(execFileSync(process.execPath, ['-e', program], { cwd: __dirname, env, encoding: 'utf8', timeout: 180_000 }));
}

test('every name is exported, by require and by import, by name and as default', async () => {
  const main = require('spanprof');
  const module = await import('spanprof/pyroscope');
  for (const name of NAMES) {
    for (const exported of [Pyroscope, main, module, module.default]) assert.equal(typeof exported[name], 'function', name);
  }
});

test('labels of wrapWithLabels last across await, and its result is returned', async () => {
  const seen = await Pyroscope.wrapWithLabels({ vehicle: 'bike' }, async () => {
    await new Promise((resolve) => setTimeout(resolve, 1));
    return Pyroscope.getLabels();
  });
  assert.deepEqual(seen, { vehicle: 'bike' });
  assert.deepEqual(Pyroscope.getLabels(), {});
});

test('the options of init are translated', (t) => {
  const stats = settings(t, `
    Pyroscope.init({ serverAddress: 'http://127.0.0.1:9', appName: 'ride', tags: { region: 'eu' }, flushIntervalMs: 5000,
      basicAuthUser: 'u', basicAuthPassword: 'p', tenantID: 't', wall: { samplingIntervalMicros: 20000, collectCpuTime: true },
      heap: { samplingIntervalBytes: 65536 }, shortenPaths: true });
    Pyroscope.start();`);
  assert.equal(stats['config.service_name'], 'ride');
  assert.equal(stats['config.endpoint'], 'http://127.0.0.1:9');
  assert.match(String(stats['config.upload_interval']), /^5s?$/);
  assert.equal(stats['config.sample_rate'], '50');
  assert.equal(stats['config.headers'].includes('dTpw'), false, 'secrets are masked');
  assert.equal(stats['config.warnings'] ?? '', '');
  assert.deepEqual([stats['config.heap'], stats['config.heap_interval'], stats['heap.interval']], ['true', '65536', 65536]);
});

test('variables of Pyroscope have lower precedence than those of spanprof', (t) => {
  const source = 'Pyroscope.init(); Pyroscope.start();';
  const theirs = { PYROSCOPE_APPLICATION_NAME: 'ride', PYROSCOPE_WALL_SAMPLING_INTERVAL_MICROS: '4000' };
  const alone = settings(t, source, theirs);
  assert.deepEqual([alone['config.service_name'], alone['config.sample_rate']], ['ride', '250']);
  const both = settings(t, source, { ...theirs, SPANPROF_SAMPLE_RATE: '75', SPANPROF_SERVICE_NAME: 'ours' });
  assert.deepEqual([both['config.service_name'], both['config.sample_rate']], ['ours', '75']);
});

test('wall-clock profiling starts and stops by its Pyroscope names', (t) => {
  const stats = settings(t, 'Pyroscope.init({ appName: "ride" }); Pyroscope.startWallProfiling();');
  assert.equal(stats['config.wall'], 'true');
});

test('init and start sample the wall clock, which is Pyroscope\'s first profile, unless it is off', (t) => {
  assert.equal(settings(t, 'Pyroscope.init({ appName: "ride" }); Pyroscope.start();')['config.wall'], 'true');
  assert.equal(settings(t, 'Pyroscope.init({ appName: "ride", wall: false }); Pyroscope.start();')['config.wall'], 'false');
  assert.equal(settings(t, 'Pyroscope.start({ serviceName: "ours" });')['config.wall'], 'false');
});

test('unset tags and addresses are left out, and nothing throws', (t) => {
  const stats = settings(t, `
    Pyroscope.init({ appName: 'ride', serverAddress: '', tags: { region: undefined, zone: null, kind: 'a' } });
    Pyroscope.start({ endpoint: '' });`);
  assert.match(stats['config.tags'], /kind/);
  assert.doesNotMatch(stats['config.tags'], /region|zone/);
});

test('the CommonJS module is its own default export, for compiled imports', () => {
  for (const name of ['spanprof', 'spanprof/pyroscope']) {
    const module = require(name);
    assert.equal(module.default, module);
    assert.equal(Object.keys(module).includes('default'), false);
  }
});

test('the heap profile is on after init, unless it is turned off, and starts and stops by its Pyroscope names', (t) => {
  const interval = (source) => settings(t, source)['heap.interval'];
  assert.equal(interval('Pyroscope.init({ appName: "ride" }); Pyroscope.start();'), 524288);
  assert.equal(interval('Pyroscope.init({ appName: "ride", heap: false }); Pyroscope.start();'), 0);
  assert.equal(interval('Pyroscope.init({ appName: "ride", heap: false }); Pyroscope.startHeapProfiling();'), 524288);
  assert.equal(interval('Pyroscope.init({ appName: "ride" }); Pyroscope.start(); Pyroscope.stopHeapProfiling();'), 0);
});
