// The flame graph of an exported page has the trees of the server's: folded, inverted, callers of a function, by label, without
// recursion. Both draw the same random stacks of own code, libraries, runtimes and the kernel.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before } from 'node:test';
import { pathToFileURL } from 'node:url';
import { eventually } from './browser.mjs';
import { exportRequest } from './otlp.mjs';
import { Server } from './server.mjs';
import { pageTest } from './session.mjs';

const SITE = '/venv/lib/python3.11/site-packages';
const STANDARD = '/usr/lib/python3.11';
/** File and frame type of each function. */
const FRAMES = {
  _start: ['/usr/bin/python3.11', 'native'], run_forever: [`${STANDARD}/asyncio/runners.py`, 'cpython'], serve: [`${SITE}/uvicorn/server.py`, 'cpython'],
  run_endpoint: [`${SITE}/fastapi/routing.py`, 'cpython'], wrapper: [`${STANDARD}/functools.py`, 'cpython'], handle: ['/srv/shop/app.py', 'cpython'],
  price: ['/srv/shop/price.py', 'cpython'], walk: ['/srv/shop/walk.py', 'cpython'], loads: [`${STANDARD}/json/__init__.py`, 'cpython'],
  decode: [`${STANDARD}/json/decoder.py`, 'cpython'], scan_once: ['/usr/bin/python3.11', 'native'], gc_collect_main: ['/usr/bin/python3.11', 'native'],
  madvise: ['/lib/libc.so.6', 'native'], do_syscall_64: ['', 'kernel'], zap_pte: ['', 'kernel'], query: ['/x/node_modules/pg/client.js', 'v8js'],
  '[lock]': ['', 'native'], GC: ['', 'native'], 'java.util.HashMap.resize': ['HashMap.java', 'jvm'], 'java.util.HashMap$Node[]': ['', 'jvm'],
  'com.acme.Shop.run': ['Shop.java', 'jvm'], 'org.springframework.web.Dispatcher.service': ['Dispatcher.java', 'jvm'],
  'G1ParScanThreadState::trim_queue': ['/usr/lib/jvm/java-17/lib/server/libjvm.so', 'native'], unknown: ['', ''], spanprof: [`${SITE}/spanprof/_core.so`, 'native'],
};
const NAMES = Object.keys(FRAMES);
const ROUTES = 9;
const SERVICE = { name: 'mixed', pid: 1, frames: { frameType: (name) => FRAMES[name][1], fileOf: (name) => FRAMES[name][0] } };

/** Deterministic numbers below a limit (the generator of Numerical Recipes). */
function randomNumbers(seed) {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}
function samples() {
  const random = randomNumbers(27);
  return Array.from({ length: 600 }, (_, nth) => {
    const type = nth % 3 ? 'cpu' : 'alloc_space';
    // Few functions in the outer calls, so that stacks share them; repetitions are recursion.
    const functions = Array.from({ length: 1 + random(12) }, (_, depth) => NAMES[random(Math.min(NAMES.length, 4 + 3 * depth))]);
    if (random(4) === 0) functions.push(functions.at(-1));
    const labels = random(5) ? { 'http.route': `/route/${random(ROUTES)}` } : {};
    return { type, functions, weight: (1 + random(50)) * 10_000_000, labels };
  });
}

let server, folder, address;
before(async () => {
  server = await Server.start();
  folder = mkdtempSync(path.join(tmpdir(), 'spanprof-exported-'));
  const end = Math.floor(Date.now() / 10_000) * 10_000;
  const sent = await fetch(`${server.url}/v1development/profiles`, {
    method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify(exportRequest(SERVICE, { fromMs: end - 10_000, toMs: end }, samples())),
  });
  assert.ok(sent.ok, await sent.text());
  const response = await fetch(`${server.url}/api/profile?format=flamegraph`);
  const file = path.join(folder, 'profile.html');
  writeFileSync(file, await response.text());
  address = pathToFileURL(file).href;
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Level, function and self weight of the nodes, whatever the numbers of the functions. */
function rows({ names, files, file, lines, kinds, kind, origin, nodes }) {
  return Array.from({ length: nodes.length / 3 }, (_, at) => {
    const [level, fn, self] = nodes.slice(3 * at, 3 * at + 3);
    return [level, names[fn], files[file[fn]], lines[fn], kinds[kind[fn]], origin[fn], self].join(' ');
  });
}
async function servedTree(query) {
  const response = await fetch(`${server.url}/api/flamegraph?${query}`);
  assert.equal(response.status, 200);
  return response.json();
}
/** The tree that the page draws in the state of a fragment. */
async function drawnTree(page, fragment) {
  await page.evaluate((hash) => {
    const { show } = Flamegraph.prototype;
    Flamegraph.prototype.show = function (tree, options) { window.drawnTree = tree; return show.call(this, tree, options); };
    window.drawnTree = null;
    location.hash = hash;
  }, fragment);
  return eventually(async () => {
    const tree = await page.evaluate(() => window.drawnTree);
    assert.ok(tree, `the page draws ${fragment}`);
    return tree;
  });
}

/** State of the page, and parameters of the server. */
const SHAPES = {
  'as called': ['', ''],
  inverted: ['inverted=1', 'invert=1'],
  'callers of a function': ['callers=^walk', 'callers=^walk'],
  'without recursion': ['recursion=collapse', 'recursion=collapse'],
  'inverted without recursion': ['inverted=1&recursion=collapse', 'invert=1&recursion=collapse'],
  'with a filter': ['focus=handle&ignore=GC&label=http.route=~/route/[1-4]', 'focus=handle&ignore=GC&label=http.route=~/route/[1-4]'],
  'by label': ['group=http.route', 'group=http.route'],
  'inverted by label': ['group=http.route&inverted=1', 'group=http.route&invert=1'],
  'with a search that matches folded frames': ['search=decode', 'search=decode'],
  'of a selected function': ['function=run_endpoint', 'search=/^run_endpoint$/'],
};

for (const type of ['cpu', 'alloc_space']) {
  pageTest(`an exported page has the server's trees of ${type}, folded or not`, async ({ openAddress }) => {
    const page = await openAddress(`${address}#view=flame`);
    for (const [name, [fragment, parameters]] of Object.entries(SHAPES)) {
      for (const isFolded of [true, false]) {
        const served = await servedTree(`type=${type}&${parameters}${isFolded ? '&fold=libraries' : ''}`);
        const drawn = await drawnTree(page, `view=flame&type=${type}&${fragment}${isFolded ? '' : '&libraries=1'}`);
        assert.deepEqual(rows(drawn), rows(served.tree), `${name}, ${isFolded ? '' : 'not '}folded`);
        assert.equal(Boolean(drawn.inverted), Boolean(served.inverted), name);
        assert.ok(served.tree.nodes.length > 60, `${name} has ${served.tree.nodes.length / 3} nodes`);
      }
    }
  });
}
