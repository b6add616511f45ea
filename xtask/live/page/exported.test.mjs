// The exported page: the page with its data in one file, without a server.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { amount, assertTotal, fixture, outermost, ownServerUrl, pageTest, serverUrl, tableFunctions } from './session.mjs';
import { eventually } from './browser.mjs';
import { GROWN, ROOTS, WINDOWS } from './fixture.mjs';
import { exportRequest } from './otlp.mjs';
import { PROGRAM, SOURCE } from './server.mjs';

/** Runs `body` with the address of a file that the server exports for `query`, as `edited`. */
async function withExported(query, body, edited = (text) => text, server = serverUrl()) {
  const folder = mkdtempSync(path.join(tmpdir(), 'spanprof-exported-'));
  try {
    const response = await fetch(`${await server}/api/profile?format=flamegraph&${query}`);
    assert.equal(response.status, 200);
    const file = path.join(folder, 'profile.html');
    writeFileSync(file, edited(await response.text()));
    return await body(pathToFileURL(file).href);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

pageTest('an exported page shows table, flame graph and types without a request', async ({ openAddress }) => {
  await withExported('service=shop', async (address) => {
    const page = await openAddress(address);
    await assertTotal(page, fixture.weight({ service: 'shop', type: 'cpu' }));
    assert.ok((await tableFunctions(page)).length > 50);
    await page.click('#top-head th[data-sort="cum"]');
    await eventually(async () => assert.deepEqual((await tableFunctions(page)).slice(0, 3).sort(), [...ROOTS].sort()));
    await page.choose('#types', 'Wall time');
    await assertTotal(page, fixture.weight({ service: 'shop', type: 'wall' }));
    await page.choose('#types', 'Allocated');
    await assertTotal(page, fixture.weight({ service: 'shop', type: 'alloc_space' }), 'bytes');
    assert.equal(await page.count('.problem'), 0);
    assert.deepEqual(await page.evaluate(() => performance.getEntriesByType('resource').map((entry) => entry.name)), []);
  });
});

pageTest('an exported page has the labels, and filters by them', async ({ openAddress }) => {
  await withExported('service=api', async (address) => {
    const page = await openAddress(address);
    await page.type('#filter', 'http.route=/cart', { enter: true });
    await assertTotal(page, fixture.weight({ service: 'api', type: 'cpu' }, ({ labels }) => labels?.['http.route'] === '/cart'));
    assert.deepEqual((await tableFunctions(page)).sort(), ['main', 'price', 'render_cart', 'serve']);
    await page.click('#chips button[aria-label^="Remove"]');
    await page.type('#filter', 'http.route!=/cart', { enter: true });
    await assertTotal(page, fixture.weight({ service: 'api', type: 'cpu' }, ({ labels }) => labels?.['http.route'] !== '/cart'));
  });
});

pageTest('the address of an exported page holds its state', async ({ openAddress }) => {
  await withExported('service=api', async (address) => {
    const page = await openAddress(`${address}#type=wall&view=top&search=price`);
    assert.deepEqual(await tableFunctions(page), ['price']);
    const weight = fixture.weight({ service: 'api', type: 'wall' }, ({ functions }) => functions.includes('price'));
    assert.ok((await page.text('#top-rows td.number')).startsWith(amount(weight)));
    await page.choose('#types', 'CPU');
    await page.settled();
    assert.match(await page.evaluate(() => location.hash), /type=cpu/);
  });
});

pageTest('an exported page says where its profiles come from', async ({ openAddress }) => {
  await withExported('service=api', async (address) => {
    const page = await openAddress(address);
    await page.clickText('.menu summary', 'About');
    const about = await page.text('#about');
    assert.match(about, /Duration 2\.00 min/);
    assert.match(about, /service\.name api/);
    assert.match(about, /process\.pid 4712/);
    const samples = fixture.weight({ service: 'api', type: 'cpu' }) / 10_000_000;
    assert.ok(about.includes(`Samples ${samples.toLocaleString('en')} cpu, `), about);
    assert.doesNotMatch(about, /Lost samples/, 'the windows do not say what the run lost');
  });
});

pageTest('the page of a run says in About what it lost, also that it lost nothing', async ({ openAddress }) => {
  for (const [losses, words] of [['[["queue_full","3"],["late_tick","2"]]', '3 queue_full, 2 late_tick'], ['[]', 'none']]) {
    // As `output` writes it.
    const ofRun = (text) => text.replace('"type":"cpu","functions":', `"losses":${losses},$&`);
    await withExported('service=api', async (address) => {
      const page = await openAddress(address);
      await page.clickText('.menu summary', 'About');
      const about = await page.text('#about');
      assert.ok(about.includes(`Lost samples ${words}`), about);
    }, ofRun);
  }
});

pageTest('an exported page folds libraries, and inverts and groups stacks, as the served page', async ({ openAddress }) => {
  await withExported('', async (address) => {
    const drawn = async (page) => Number(await page.evaluate(() => document.querySelector('#flame .flamegraph').dataset.drawn));
    const page = await openAddress(`${address}#service=shop&type=wall&view=flame`);
    const folded = await drawn(page);
    await page.press('l');
    await eventually(async () => assert.equal(page.hash().get('libraries'), '1'));
    await eventually(async () => assert.ok((await drawn(page)) > folded, 'each function of the libraries is a frame'));
    await assertTotal(page, fixture.weight({ service: 'shop', type: 'wall' }));
    await page.press('l');
    await page.press('i');
    await eventually(async () => assert.equal(page.hash().get('inverted'), '1'));
    assert.deepEqual(await page.texts('#chips .chip'), ['inverted ×']);
    await assertTotal(page, fixture.weight({ service: 'shop', type: 'wall' }));
    const grouped = await openAddress(`${address}#service=api&view=flame&group=http.route`);
    await grouped.focus('#flame canvas');
    await grouped.press('ArrowDown');
    await grouped.press('ArrowDown');
    const cart = fixture.weight({ service: 'api', type: 'cpu' }, ({ labels }) => labels?.['http.route'] === '/cart');
    const announced = await grouped.text('#flame .flamegraph-announcement');
    assert.ok(announced.startsWith(`http.route=/cart, total ${amount(cart)}`), announced);
  });
});

pageTest('an exported page has the source lines of --source-path, with their weight', async ({ openAddress }) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'spanprof-exported-'));
  try {
    const [profile, sources, file] = ['api.otlp.pb', 'sources', 'api.html'].map((name) => path.join(folder, name));
    const response = await fetch(`${await serverUrl()}/api/profile?format=otlp&service=api`);
    writeFileSync(profile, new Uint8Array(await response.arrayBuffer()));
    mkdirSync(path.join(sources, 'api'), { recursive: true });
    writeFileSync(path.join(sources, 'api', 'app.py'), SOURCE.join('\n'));
    execFileSync(PROGRAM, ['flamegraph', profile, '--source-path', sources, '-o', file], { stdio: ['ignore', 'ignore', 'pipe'] });
    const address = pathToFileURL(file).href;
    const page = await openAddress(`${address}#function=charge`);
    const rows = await page.texts('#source-lines tr');
    assert.equal(rows.length, 7, `three lines before and after line 12: ${rows}`);
    const self = fixture.weight({ service: 'api', type: 'cpu' }, ({ functions }) => functions.at(-1) === 'charge');
    assert.ok(rows[3].startsWith(amount(self)) && rows[3].endsWith(`12 ${SOURCE[11].trim()}`), rows[3]);
    assert.equal(await page.count('#source-note'), 0);
    const filtered = await openAddress(`${address}#function=charge&focus=sign`);
    assert.match(await filtered.text('#source-note'), /without the filters/);
    assert.deepEqual(await page.axe(), []);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

pageTest('the page of spanprof diff shows what changed, without a request', async ({ openAddress }) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'spanprof-exported-'));
  try {
    const halves = [[0, WINDOWS / 2 - 1], [WINDOWS / 2, WINDOWS - 1]];
    const files = await Promise.all(halves.map(async ([first, last], half) => {
      const file = path.join(folder, `${half}.otlp.pb`);
      const response = await fetch(`${await serverUrl()}/api/profile?format=otlp&service=shop&type=cpu&${fixture.range(first, last)}`);
      writeFileSync(file, new Uint8Array(await response.arrayBuffer()));
      return file;
    }));
    const graph = path.join(folder, 'diff.html');
    execFileSync(PROGRAM, ['diff', ...files, '-o', graph], { stdio: ['ignore', 'ignore', 'pipe'] });
    const page = await openAddress(pathToFileURL(graph).href);
    const totals = halves.map(([first, last]) => fixture.weight({ service: 'shop', type: 'cpu' }, ({ window }) => window >= first && window <= last));
    assert.ok((await page.text('#compare-basis')).includes(`${amount(totals[0])} → ${amount(totals[1])}`), await page.text('#compare-basis'));
    assert.ok((await page.texts('#compare-rows .name div')).includes(GROWN));
    const significant = await page.count('#compare-rows tr');
    await page.click('#all-changes');
    await eventually(async () => assert.ok((await page.count('#compare-rows tr')) > significant, 'All changes lists the others too'));
    assert.match(await page.text('#compare-flame .flamegraph-about'), /^CPU: /);
    assert.equal(await outermost(page), 'java.lang');
    await page.press('l');
    await eventually(async () => assert.equal(await outermost(page), ROOTS[0]));
    assert.equal(page.hash().get('libraries'), '1');
    assert.equal(await page.count('.problem'), 0);
    assert.deepEqual(await page.axe(), []);
    assert.deepEqual(await page.evaluate(() => performance.getEntriesByType('resource').map((entry) => entry.name)), []);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

pageTest('a function of an exported page has its callers and callees, and focus selects its stacks', async ({ openAddress }) => {
  await withExported('service=api', async (address) => {
    const through = (name) => ({ type, functions }) => type === 'cpu' && functions.includes(name);
    const page = await openAddress(`${address}#function=render_cart`);
    const weight = fixture.weight({ service: 'api' }, through('render_cart'));
    await eventually(async () => assert.ok((await page.text('#function-weight')).startsWith(`${amount(weight)} total`)));
    assert.deepEqual(await page.texts('#callers .name div'), ['serve']);
    assert.deepEqual(await page.texts('#callees .name div'), ['price']);
    await page.clickText('#callees tr', 'price');
    await eventually(async () => assert.deepEqual(await page.texts('#callers .name div'), ['render_cart']));
    const focused = await openAddress(`${address}#focus=%5Erender_cart%24`);
    await assertTotal(focused, weight);
    const hidden = await openAddress(`${address}#ignore=%5Erender_cart%24`);
    await assertTotal(hidden, fixture.weight({ service: 'api', type: 'cpu' }) - weight);
  });
});

pageTest('an exported page charges libraries to own code', async ({ openAddress }) => {
  await withExported('service=shop', async (address) => {
    const page = await openAddress(`${address}#type=wall&view=top&sort=own`);
    assert.equal((await page.texts('#top-rows .name div'))[0].startsWith('com.acme.'), true);
    const idle = fixture.weight({ service: 'shop', type: 'wall' }, ({ functions }) => functions.includes('sun.nio.ch.EPoll.wait'));
    assert.ok(idle > 0);
    assert.ok(!(await page.texts('#top-rows tr')).some((row) => /^sun\.|[^0]0 ns/.test(row)));
  });
});

for (const theme of ['light', 'dark']) {
  for (const width of [400, 1400]) {
    pageTest(`an exported page is accessible, ${theme}, ${width} pixels wide`, async ({ openAddress }) => {
      await withExported('', async (address) => {
        const page = await openAddress(address, { width, theme });
        assert.deepEqual(await page.axe(), []);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `the page is ${wide} pixels wide`);
      });
    });
  }
}

pageTest('native code has its own rows and counts for the function and the line that called it, also in an exported page', async ({ openAddress }) => {
  const files = { dgemm_kernel: '/venv/site-packages/numpy.libs/libopenblas.so', start_thread: '/lib/libc.so.6', fast_sort: '/srv/api/fast.so', raw_decode: '/usr/lib/python3.11/json/decoder.py' };
  const frames = { frameType: (name) => (files[name]?.includes('.so') ? 'native' : 'cpython'), fileOf: (name) => files[name] ?? '/srv/api/app.py' };
  const weights = [[['main', 'predict', 'dgemm_kernel'], 60], [['main', 'predict'], 10], [['main', 'rank', 'fast_sort', 'key'], 15], [['main', 'raw_decode', 'fast_sort'], 5], [['start_thread', 'dgemm_kernel'], 10]];
  const url = ownServerUrl('native', async (url) => {
    const toMs = Math.floor(Date.now() / 1000) * 1000;
    const samples = weights.map(([functions, samples]) => ({ type: 'cpu', functions, weight: samples * 10_000_000 }));
    const body = JSON.stringify(exportRequest({ name: 'native', pid: 1, frames }, { fromMs: toMs - 10_000, toMs }, samples));
    assert.ok((await fetch(`${url}/v1development/profiles`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })).ok);
  });
  const served = await openAddress(`${await url}/?view=both&type=cpu&function=predict`);
  const rows = (page) => page.texts('#top-rows tr');
  await eventually(async () => assert.equal((await rows(served)).length, 8));
  const row = (name) => rows(served).then((rows) => rows.find((row) => row.includes(name)).replaceAll(/\s+/g, ' '));
  assert.match(await row('dgemm_kernel'), /^700 ms ?70\.0% ?0 ?0\.0% ?700 ms ?70\.0%/);
  assert.match(await row('predict'), /^100 ms ?10\.0% ?700 ms ?70\.0% ?700 ms ?70\.0%.*\+ 60\.0% in native code$/);
  assert.match(await row('raw_decode'), /^0 ?0\.0%.*\+ 5\.0% in native code$/);
  assert.doesNotMatch(await row('rank'), /native code/, 'a function that native code called has its own time');
  assert.match(await served.text('#function-weight'), /100 ms self, 10\.0% \+ 60\.0% in native code/);
  const line = (await served.texts('#source-lines tr')).find((line) => line.includes('line 12'));
  assert.match(line, /^700 ms\s*700 ms\s*12/);
  await withExported('service=native', async (address) => {
    const page = await openAddress(`${address}#view=both&type=cpu&function=predict`);
    const sorted = async (page) => (await rows(page)).sort();
    await eventually(async () => assert.deepEqual(await sorted(page), await sorted(served)));
    assert.equal(await page.text('#function-weight'), await served.text('#function-weight'));
  }, undefined, url);
});
