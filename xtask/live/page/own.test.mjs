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
