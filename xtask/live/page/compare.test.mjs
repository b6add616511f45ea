// The view Compare. In the later half of the windows of `shop` one function has grown, and one that was only a caller has self
// time.

import assert from 'node:assert/strict';
import { amount, fixture, outermost, ownServerUrl, pageTest } from './session.mjs';
import { eventually } from './browser.mjs';
import { FORMER_CALLER, GROWN, ROOTS, WINDOWS } from './fixture.mjs';
import { exportRequest } from './otlp.mjs';

const COMPARE = '?service=shop&type=cpu&view=compare';
/** The later half; its default baseline is the range of the same length before it. */
const HALVES = `${COMPARE}&${fixture.range(WINDOWS / 2, WINDOWS - 1)}`;
const AMOUNT = /\d[\d.,]* (?:ns|µs|ms|s|min|h)\b/g;

const halves = () => [0, 1].map((half) =>
  fixture.weight({ service: 'shop', type: 'cpu' }, ({ window }) => Math.floor(window / (WINDOWS / 2)) === half));

/** The text of the row of a function. */
async function row(page, name) {
  const found = (await page.texts('#compare-rows tr')).filter((text) => text.includes(name) && !text.includes(' > '));
  assert.equal(found.length, 1, `rows of ${name}: ${found}`);
  return found[0];
}

pageTest('without a range, the comparison has a baseline with samples', async ({ open }) => {
  const page = await open(COMPARE);
  const totals = (await page.text('#compare-basis')).match(AMOUNT) ?? [];
  assert.equal(totals.length, 2, `a total of each side that is not 0: ${totals}`);
  await row(page, GROWN);
  const [table, graph] = await page.evaluate(() => ['#compare .pane', '#compare-flame'].map((selector) => document.querySelector(selector).getBoundingClientRect().toJSON()));
  assert.ok(graph.left >= table.right && graph.top === table.top, 'the flame graph is beside the table');
});

/** Services, each with the type of its samples by window; a service or a type that is absent before has no baseline there. */
const PARTIAL = {
  older: () => 'cpu',
  newer: (window) => (window >= WINDOWS / 2 ? 'cpu' : null),
  paused: (window) => (window === 0 || window >= 8 ? 'cpu' : null),
  changed: (window) => (window >= WINDOWS / 2 ? 'cpu' : 'wall'),
};
const partialUrl = () => ownServerUrl('partial', async (url) => {
  for (let window = 0; window < WINDOWS; window++) {
    for (const [nth, [name, typeOf]] of Object.entries(PARTIAL).entries()) {
      if (!typeOf(window)) continue;
      const service = { name, pid: 6000 + nth, frames: { frameType: 'cpython', fileOf: () => '/srv/app.py' } };
      const samples = [{ type: typeOf(window), functions: ['main', 'serve'], weight: 1e9 }];
      const body = JSON.stringify(exportRequest(service, fixture.window(window), samples));
      const response = await fetch(`${url}/v1development/profiles`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
      assert.ok(response.ok, await response.text());
    }
  }
});
const baselineOf = (page) => page.evaluate(() => document.querySelector('#base').value);

for (const [name, first, base, seconds] of [['older', 6, 'previous', 6], ['newer', 6, 'half', 3], ['changed', 6, 'half', 3], ['paused', 8, 'half', 2]]) {
  pageTest(`the default baseline of a service that is ${name} is ${base} and has samples`, async ({ openAddress }) => {
    const page = await openAddress(`${await partialUrl()}/?service=${name}&type=cpu&view=compare&${fixture.range(first, WINDOWS - 1)}`);
    assert.equal(await baselineOf(page), base);
    assert.deepEqual((await page.text('#compare-basis')).match(AMOUNT), [seconds, seconds].map((total) => amount(total * 1e9)));
  });
}

pageTest('the later half of the windows is compared with the earlier half', async ({ open }) => {
  const page = await open(HALVES);
  assert.match(await row(page, GROWN), /\+\d{2,3}(\.\d)?%/);
});

pageTest('the comparison states one total of each side, the same in the flame graph and the headline', async ({ open }) => {
  const page = await open(HALVES);
  const basis = await page.text('#compare-basis');
  const totals = halves().map((weight) => amount(weight));
  assert.deepEqual(basis.match(AMOUNT), totals, basis);
  const bar = await page.text('#compare-flame .flamegraph-about');
  assert.deepEqual(bar.match(AMOUNT), totals, bar);
  const headline = await page.text('#figures');
  assert.ok(headline.includes(totals[1]), `${totals[1]} is in the headline: ${headline}`);
});

pageTest('a function that had no self time before, and was a caller, is not called new', async ({ open }) => {
  const page = await open(HALVES);
  const text = await row(page, FORMER_CALLER);
  assert.doesNotMatch(text, /\bnew\b/);
});

pageTest('a click on a changed function marks it in the flame graph', async ({ open }) => {
  const page = await open(HALVES);
  await page.clickText('#compare-rows tr', GROWN);
  await eventually(async () => assert.match(await page.text('#compare-flame .flamegraph-match'), /^Matched \d/));
  assert.equal(page.query().get('function'), GROWN);
});

pageTest('the comparison folds libraries, and a function within them that is chosen unfolds them', async ({ open }) => {
  const page = await open(HALVES);
  assert.equal(await outermost(page), 'java.lang');
  await page.press('l');
  await eventually(async () => assert.equal(await outermost(page), ROOTS[0]));
  assert.equal(page.query().get('libraries'), '1');
  const bar = await page.text('#compare-flame .flamegraph-about');
  assert.deepEqual(bar.match(AMOUNT), halves().map((weight) => amount(weight)), bar);
  await page.press('l');
  await eventually(async () => assert.equal(await outermost(page), 'java.lang'));
  const chosen = await open(`${HALVES}&function=${ROOTS[0]}`);
  assert.match(await chosen.text('#compare-flame .flamegraph-match'), /^Matched 100/);
});

pageTest('a comparison without samples names the filter that excludes them, and a button removes it', async ({ open }) => {
  const page = await open(`?service=api&type=cpu&view=compare&label=http.route%3D/pay&label=color%3Dblue&${fixture.range(WINDOWS / 2, WINDOWS - 1)}`);
  assert.equal(await page.text('#nothing'), 'No sample passes the filters. Without color=blue, some would. Remove color=blue');
  await page.clickText('button.remove-filter', 'Remove color=blue');
  await page.settled();
  assert.equal(await page.text('#nothing'), '');
  assert.equal((await page.text('#compare-basis')).match(AMOUNT)?.length, 2);
});

pageTest('both ends of an interval have one format', async ({ open }) => {
  const page = await open(HALVES);
  const growths = [[-0.123, 0.5], [9.994, 92.856], [92.856, 150], [1, null]];
  const end = await page.intercept('/api/diff', async (request) => {
    const response = await fetch(request.url()).then((answer) => answer.json());
    response.rows = growths.map(([low, high]) => ({ ...response.rows[0], significant: true, growth: { low, high } }));
    return { contentType: 'application/json', body: JSON.stringify(response) };
  });
  await page.click('#refresh');
  await eventually(async () => assert.equal((await page.texts('#compare-rows td.interval')).length >= growths.length, true));
  const shown = (await page.texts('#compare-rows td.interval')).slice(0, growths.length);
  assert.deepEqual(shown, ['-12.3% … +50.0%', '+999.4% … +9,286%', '+9,286% … >9,999%', '+100.0% … ∞']);
  const isCut = await page.evaluate(() => [...document.querySelectorAll('#compare-rows td.interval')].some((cell) => cell.scrollWidth > cell.clientWidth));
  assert.equal(isCut, false);
  await end();
});

pageTest('the address has the zoom of the comparison and whether vanished call paths are shown', async ({ open }) => {
  // The later half is the baseline: what only that half has has vanished.
  const reversed = `${COMPARE}&libraries=1&${fixture.range(0, WINDOWS / 2 - 1)}`;
  const drawn = (page) => page.evaluate(() => Number(document.querySelector('#compare-flame .flamegraph').dataset.drawn));
  const zoomed = (page) => page.text('#compare-flame .flamegraph-about');
  const page = await open(`${reversed}&base=half`);
  await page.focus('#compare-flame canvas');
  for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'Enter']) await page.press(key);
  await eventually(async () => assert.ok((await zoomed(page)).startsWith(ROOTS[1]), await zoomed(page)));
  await eventually(async () => assert.match(page.query().get('zoom') ?? '', /^[0-9a-f]{8}\.[0-9a-f]{8}$/));
  await page.click('#vanished');
  await eventually(async () => assert.equal(page.query().get('vanished'), '1'));
  assert.ok((await zoomed(page)).startsWith(ROOTS[1]), await zoomed(page));
  assert.equal((await page.texts('.flamegraph-toggle')).length, 0, 'the graph has no second control');
  const again = await open(`?${page.query()}`);
  assert.equal(await zoomed(again), await zoomed(page));
  assert.equal(await again.evaluate(() => document.querySelector('#vanished').checked), true);
  assert.equal(await drawn(again), await drawn(page));
  await again.evaluate(() => { location.search = location.search.replace(/&zoom=[^&]*/, ''); });
  await eventually(async () => assert.equal(again.query().get('zoom'), null));
  await again.settled();
  assert.ok((await zoomed(again)).startsWith('CPU'), await zoomed(again));
});
