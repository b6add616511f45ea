// Own code: the column that charges libraries to their own callers.

import assert from 'node:assert/strict';
import { eventually } from './browser.mjs';
import { fixture, amount, pageTest, tableFunctions } from './session.mjs';

const isOwn = (name) => name.startsWith('com.acme.');
const numbers = (page, row) => page.texts(`#top-rows tr:nth-child(${row}) td.number`);

pageTest('the column Own charges each sample to its innermost own function', async ({ open }) => {
  const page = await open('?service=shop&type=wall&view=top');
  assert.deepEqual((await page.texts('#top-head th')).map((text) => text.replace(/ [↑↓]$/, '')), ['Self', 'Own', 'Total', 'Function']);
  await page.click('#top-head th[data-sort="own"]');
  await eventually(async () => assert.equal(page.query().get('sort'), 'own'));
  const weights = new Map();
  for (const { functions, weight } of fixture.samples.filter((sample) => sample.service === 'shop' && sample.type === 'wall')) {
    const own = functions.findLast(isOwn);
    weights.set(own, (weights.get(own) ?? 0) + weight);
  }
  assert.ok(weights.get(undefined) > 0, 'the fixture has samples without own code');
  weights.delete(undefined);
  const [first, weight] = [...weights].sort((one, other) => other[1] - one[1])[0];
  await eventually(async () => assert.equal((await tableFunctions(page))[0], first));
  assert.ok((await numbers(page, 1))[1].startsWith(amount(weight)), `${await numbers(page, 1)}`);
});

pageTest('a function of a library has no own weight', async ({ open }) => {
  const page = await open('?service=shop&type=wall&view=top&search=EPoll');
  await eventually(async () => assert.deepEqual(await tableFunctions(page), ['sun.nio.ch.EPoll.wait']));
  const [self, own] = await numbers(page, 1);
  assert.match(self, /^[1-9]/);
  assert.match(own, /^0 ?0\.0%$/);
});

const FLAME = '?service=shop&type=wall';
/** Names of the heaviest path of the flame graph, root first, as the keys read them. */
async function heaviestPath(page, levels) {
  await page.focus('#flame canvas');
  await page.press('Home');
  const names = [];
  for (let level = 0; level < levels; level++) {
    await page.press('ArrowDown');
    names.push((await page.text('#flame .flamegraph-announcement')).split(', total ')[0]);
  }
  return names;
}

pageTest('libraries are folded until the button or the key l unfolds them', async ({ open }) => {
  const page = await open(`${FLAME}&view=flame`);
  const isPressed = () => page.evaluate(() => document.querySelector('#libraries').ariaPressed);
  assert.equal(await isPressed(), 'false');
  assert.deepEqual(await heaviestPath(page, 2), ['java.lang', 'com.acme.shop.http.Worker.run']);
  await page.press('l');
  await page.settled();
  assert.deepEqual([await isPressed(), page.query().get('libraries')], ['true', '1']);
  assert.deepEqual(await heaviestPath(page, 2), ['java.lang.Thread.run', 'com.acme.shop.http.Worker.run']);
  await page.click('#libraries');
  await page.settled();
  assert.deepEqual([await isPressed(), page.query().get('libraries')], ['false', null]);
  assert.deepEqual(await heaviestPath(page, 1), ['java.lang']);
});

pageTest('a click on the row of a folded function shows and marks it', async ({ open }) => {
  const page = await open(`${FLAME}&view=both&sort=flat`);
  const name = 'sun.nio.ch.EPoll.wait';
  const weight = fixture.weight({ service: 'shop', type: 'wall' }, (sample) => sample.functions.includes(name));
  await page.clickText('#top-rows tr', name);
  const matched = () => page.text('#flame .flamegraph-match');
  await eventually(async () => assert.ok((await matched()).includes(amount(weight)), await matched()));
  await page.clickText('#top-rows tr', name);
  await eventually(async () => assert.equal(await matched(), ''));
});

pageTest('a search finds folded functions, and the table alone has no button', async ({ open }) => {
  const page = await open(`${FLAME}&view=flame`);
  await page.type('#search', 'selectorimpl');
  const weight = fixture.weight({ service: 'shop', type: 'wall' }, (sample) => sample.functions.includes('sun.nio.ch.SelectorImpl.select'));
  const matched = () => page.text('#flame .flamegraph-match');
  await eventually(async () => assert.ok((await matched()).includes(amount(weight)), await matched()));
  const table = await open(`${FLAME}&view=top`);
  assert.equal(await table.count('#libraries'), 0, 'the table has no flame graph');
});
