// `spanprof convert --to firefox` in the Firefox Profiler: its command line has the loader and the call tree of its page.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import path from 'node:path';
import { eventually } from './browser.mjs';
import { link } from './fixture.mjs';
import { exportRequest } from './otlp.mjs';
import { PROGRAM } from './server.mjs';

const PROFILER = fileURLToPath(import.meta.resolve('@firefox-devtools/profiler-cli/dist/profiler-cli.js'));
const MS = 1_000_000;
const START_MS = 1_760_000_000_000;
const at = (...ms) => ms.map((after) => START_MS + after);

/** Two requests on two threads, and a background thread. */
function samples() {
  const on = (thread, route) => ({ 'thread.name': thread, ...(route && { 'http.route': route, 'http.request.method': 'GET' }) });
  const [cart, search] = [{ labels: on('worker-1', '/cart'), link: link(1, 0, false) }, { labels: on('worker-2', '/search'), link: link(2, 0, false) }];
  return [
    { ...cart, type: 'cpu', functions: ['main', 'serve', 'price'], weight: 30 * MS, timesMs: at(10, 20, 50) },
    { ...cart, type: 'cpu', functions: ['main', 'serve', 'loads', 'price'], weight: 10 * MS, timesMs: at(30) },
    { ...cart, type: 'off_cpu', functions: ['main', 'serve', '[lock]'], weight: 200 * MS, timesMs: at(90) },
    { ...cart, type: 'alloc_space', functions: ['main', 'serve', 'render'], weight: 4096, timesMs: at(25) },
    { ...search, type: 'cpu', functions: ['main', 'serve', 'rank', 'rank'], weight: 20 * MS, timesMs: at(15, 70) },
    { labels: on('reindex'), type: 'cpu', functions: ['main', 'reindex'], weight: 500 * MS, timesMs: at(5, 40, 60, 80, 100) },
    { labels: on('reindex'), type: 'alloc_space', functions: ['main', 'reindex'], weight: 5 << 20, timesMs: at(5, 41, 61, 81, 99) },
  ];
}

/**
 * Runs `body` with a source of the profiles, and a function that runs a command of the Firefox Profiler on the converted file. Its
 * daemon, which `load` would start, is a child of the test: it ends with it.
 */
async function withLoaded(body) {
  const folder = mkdtempSync(path.join(tmpdir(), 'spanprof-firefox-'));
  const [source, converted] = ['shop.otlp.json', 'shop.firefox.json'].map((name) => path.join(folder, name));
  const frames = { frameType: 'cpython', fileOf: (name) => (name.startsWith('[') ? '' : name === 'loads' ? '/usr/lib/python3.11/json/__init__.py' : '/srv/shop/app.py') };
  const window = { fromMs: START_MS, toMs: START_MS + 1000 };
  writeFileSync(source, JSON.stringify(exportRequest({ name: 'shop', pid: 4711, frames }, window, samples())));
  execFileSync(PROGRAM, ['convert', source, '-o', converted], { stdio: 'pipe' });
  const options = { env: { ...process.env, PROFILER_CLI_SESSION_DIR: folder }, stdio: 'pipe', encoding: 'utf8' };
  const daemon = spawn(process.execPath, [PROFILER, '--daemon', converted, '--session', 'shop'], { ...options, stdio: 'ignore' });
  const answer = (...words) => JSON.parse(execFileSync(process.execPath, [PROFILER, ...words, '--session', 'shop', '--json'], options));
  try {
    // A command before that would remove the session, which it takes for one whose daemon ended.
    await eventually(() => assert.match(readFileSync(path.join(folder, 'shop.log'), 'utf8'), /Profile loaded successfully/), 60_000);
    return await body({ source, answer, profile: JSON.parse(readFileSync(converted, 'utf8')) });
  } finally {
    const ended = once(daemon, 'exit');
    daemon.kill();
    await ended;
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

test('the Firefox Profiler shows the lanes of each thread, with CPU time first, and selects the busiest', () => withLoaded(({ answer }) => {
  const { threads } = answer('thread', 'list');
  const byIndex = [...threads].sort((one, other) => one.threadIndex - other.threadIndex);
  assert.deepEqual(byIndex.map(({ name }) => name), ['reindex (cpu)', 'reindex (alloc_space)', 'worker-1 (cpu)', 'worker-1 (alloc_space)',
    'worker-1 (off_cpu)', 'worker-2 (cpu)']);
  assert.deepEqual([...new Set(threads.map(({ processName, pid }) => `${processName} ${pid}`))], ['shop 4711']);
  assert.deepEqual(threads.filter(({ selected }) => selected).map(({ name }) => name), ['reindex (cpu)']);
}));

test('the category of a function is the origin of its code, in every lane', () => withLoaded(({ profile }) => {
  const categories = new Map();
  for (const { stringArray, funcTable, frameTable } of profile.threads) {
    frameTable.func.forEach((func, frame) => {
      const name = stringArray[funcTable.name[func]];
      categories.set(name, (categories.get(name) ?? new Set()).add(profile.meta.categories[frameTable.category[frame]].name));
    });
  }
  assert.deepEqual([...categories.get('serve')], ['Own code']);
  assert.deepEqual([...categories.get('loads')], ['Library']);
  assert.deepEqual([...categories.get('[lock]')], ['Runtime']);
}));

test('self and total times of the Firefox Profiler are those of `spanprof top`', () => withLoaded(({ source, answer }) => {
  const sums = new Map();
  for (const { name, threadHandle } of answer('thread', 'list').threads) {
    const type = / \((.*)\)$/.exec(name)[1];
    for (const row of answer('thread', 'functions', '--thread', threadHandle, '--limit', '0', '--include-idle').functions) {
      const key = `${type} ${row.name}`;
      const [self, total] = sums.get(key) ?? [0, 0];
      sums.set(key, [self + row.selfSamples, total + row.totalSamples]);
    }
  }
  const expected = new Map();
  for (const type of ['cpu', 'off_cpu', 'alloc_space']) {
    const { rows, unit } = JSON.parse(execFileSync(PROGRAM, ['top', source, '--type', type, '--json'], { encoding: 'utf8' }));
    const scale = unit === 'nanoseconds' ? MS : 1;
    for (const row of rows) expected.set(`${type} ${row.function}`, [row.flat / scale, row.cum / scale]);
  }
  assert.deepEqual(expected.get('cpu price'), [40, 40]);
  assert.deepEqual(new Map([...sums].sort()), new Map([...expected].sort()));
}));

test('the Firefox Profiler has a marker with name, times and ids for each span', () => withLoaded(({ answer }) => {
  const markersOf = ({ threadHandle }) => answer('thread', 'markers', '--thread', threadHandle, '--list').byType;
  const shown = answer('thread', 'list').threads.flatMap(markersOf)
    .flatMap(({ markerName: name, topMarkers }) => topMarkers.map(({ start, duration, label }) => ({ name, start, duration, label })));
  assert.deepEqual(shown.sort((one, other) => one.start - other.start), [
    { name: 'GET /cart', start: 5, duration: 80, label: `${link(1, 0, false).traceId} ${link(1, 0, false).spanId}` },
    { name: 'GET /search', start: 10, duration: 55, label: `${link(2, 0, false).traceId} ${link(2, 0, false).spanId}` },
  ]);
}));
