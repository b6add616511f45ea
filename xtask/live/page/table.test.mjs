// The table of functions: sorting, search and further rows.

import assert from 'node:assert/strict';
import { amount, fixture, ownServerUrl, pageTest, tableFunctions } from './session.mjs';
import { eventually } from './browser.mjs';
import { RARE, ROOTS } from './fixture.mjs';
import { exportRequest } from './otlp.mjs';

const TABLE = '?service=shop&type=cpu&view=top';

pageTest('sorting by total lists the callers of all functions, which have no self time', async ({ open }) => {
  const page = await open(TABLE);
  assert.ok(!(await tableFunctions(page)).includes(ROOTS[0]), 'callers without self time are not listed first');
  await page.click('#top-head th[data-sort="cum"]');
  await eventually(async () => assert.deepEqual((await tableFunctions(page)).slice(0, 3).sort(), [...ROOTS].sort()));
  const total = amount(fixture.weight({ service: 'shop', type: 'cpu' }));
  const first = await page.texts('#top-rows tr:first-child td.number');
  assert.ok(first[2].startsWith(total), `the total of the first row is ${total}: ${first}`);
});

pageTest('a link with the order by total lists the same functions', async ({ open }) => {
  const page = await open(`${TABLE}&sort=cum`);
  assert.deepEqual((await tableFunctions(page)).slice(0, 3).sort(), [...ROOTS].sort());
  const order = await page.evaluate(() => document.querySelector('#top-head th[data-sort="cum"]').ariaSort);
  assert.equal(order, 'descending');
});

pageTest('sorting by name lists the functions alphabetically', async ({ open }) => {
  const page = await open('?service=api&type=cpu&view=top');
  await page.click('#top-head th[data-sort="function"]');
  const sorted = ['charge', 'main', 'price', 'query', 'rank', 'render_cart', 'select', 'serve', 'sign'];
  await eventually(async () => assert.deepEqual(await tableFunctions(page), sorted));
});

pageTest('a search finds a function that is not among the first 500', async ({ open }) => {
  const page = await open(TABLE);
  assert.ok(!(await tableFunctions(page)).includes(RARE));
  await page.type('#search', RARE);
  await eventually(async () => assert.deepEqual(await tableFunctions(page), [RARE]));
  const weight = fixture.weight({ service: 'shop', type: 'cpu' }, (sample) => sample.functions.at(-1) === RARE);
  assert.ok((await page.text('#top-rows td.number')).startsWith(amount(weight)));
});

pageTest('the button Show more appends further rows', async ({ open }) => {
  const page = await open(TABLE);
  const before = await tableFunctions(page);
  await page.clickText('button', 'Show more');
  await eventually(async () => {
    const after = await tableFunctions(page);
    assert.ok(after.length > before.length, `${before.length} rows before, ${after.length} after`);
    assert.deepEqual(after.slice(0, before.length), before);
    assert.equal(new Set(after).size, after.length, 'each function is listed once');
  });
});

pageTest('a click on a row marks its function in the flame graph', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  await page.clickText('#top-rows tr', 'charge');
  const weight = fixture.weight({ service: 'api', type: 'cpu' }, (sample) => sample.functions.includes('charge'));
  await eventually(async () => assert.ok((await page.text('#flame .flamegraph-match')).includes(amount(weight))));
  assert.equal(page.query().get('function'), 'charge');
});

pageTest('a click on one of two functions of a name marks that one', async ({ openAddress }) => {
  const weights = { 'first.js': 60_000_000, 'second.js': 20_000_000 };
  const url = await ownServerUrl('twins', async (url) => {
    const toMs = Math.floor(Date.now() / 1000) * 1000;
    for (const [file, weight] of Object.entries(weights)) {
      const frames = { frameType: 'v8js', fileOf: (name) => (name === 'main' ? 'main.js' : file) };
      const body = JSON.stringify(exportRequest({ name: 'twins', pid: 1, frames }, { fromMs: toMs - 10_000, toMs }, [{ type: 'cpu', functions: ['main', '(anonymous)'], weight }]));
      assert.ok((await fetch(`${url}/v1development/profiles`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })).ok);
    }
  });
  const page = await openAddress(`${url}/?view=both&type=cpu`);
  await page.settled();
  await page.clickText('#top-rows tr', 'second.js');
  await eventually(async () => assert.equal(await page.text('#flame .flamegraph-match'), `Matched 25.0% (${amount(weights['second.js'])})`));
  await page.settled();
});
