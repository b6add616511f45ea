// The flame graph: zoom, its address, and weights that the server left out.

import assert from 'node:assert/strict';
import { eventually } from './browser.mjs';
import { RARE } from './fixture.mjs';
import { pageTest } from './session.mjs';

const FLAME = '?service=shop&type=cpu&view=flame';
const ROW_PX = 19;

/** Clicks on the first node of a level. */
async function clickLevel(page, level) {
  const { x, y } = await page.evaluate(() => document.querySelector('#flame canvas').getBoundingClientRect().toJSON());
  const point = { x: x + 12, y: y + (level + 0.5) * ROW_PX };
  await page.drag(point, point);
}
const bar = (page) => page.text('#flame .flamegraph-about');

pageTest('a click zooms, the address keeps the zoom, and Back leaves it', async ({ open }) => {
  const page = await open(FLAME);
  const all = await bar(page);
  await clickLevel(page, 4);
  await eventually(async () => assert.match(await bar(page), /% of all$/));
  const zoomed = await bar(page);
  assert.equal(page.query().get('zoom').split('.').length, 4);
  const again = await open(`?${page.query()}`);
  await eventually(async () => assert.equal(await bar(again), zoomed));
  await page.evaluate(() => history.back());
  await eventually(async () => assert.equal(await bar(page), all));
});

pageTest('a narrow flame graph has fewer nodes, but a search has the weight of all', async ({ open }) => {
  const [wide, narrow] = [await open(`${FLAME}&search=${RARE}`), await open(`${FLAME}&search=${RARE}`, { width: 420, height: 800 })];
  const matched = (page) => page.text('#flame .flamegraph-match');
  await eventually(async () => assert.match(await matched(wide), /^Matched \d/));
  assert.equal(await matched(narrow), await matched(wide));
});
