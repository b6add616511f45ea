// Operations on the stacks of the flame graph: the context menu, inverted stacks, recursion.

import assert from 'node:assert/strict';
import { amount, assertTotal, fixture, pageTest, tableFunctions } from './session.mjs';
import { eventually } from './browser.mjs';

const CPU = { service: 'api', type: 'cpu' };
const FLAME = '?service=api&type=cpu&view=both';
const ROW_PX = 19;
const has = (name) => (sample) => sample.functions.includes(name);
const ends = (name) => (sample) => sample.functions.at(-1) === name;
const bar = (page) => page.text('#flame .flamegraph-about');
const items = (page) => page.texts('.flamegraph-menu [role="menuitem"]');

/** Opens the context menu on a node of a level, `part` from its left edge. */
async function menuAt(page, level, part = 0.01) {
  await page.evaluate((row, share) => {
    const canvas = document.querySelector('#flame canvas');
    const { left, top, width } = canvas.getBoundingClientRect();
    const point = { clientX: left + share * width + 2, clientY: top + (row + 0.5) * 19, bubbles: true, cancelable: true, button: 2 };
    canvas.dispatchEvent(new MouseEvent('contextmenu', point));
  }, level, part);
  assert.ok((await items(page)).length > 3);
}
/** What the page copies instead of writing it to the clipboard. */
async function catchCopies(page) {
  await page.evaluate(() => {
    window.copies = [];
    Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copies.push(text); } } });
  });
  return () => page.evaluate(() => window.copies);
}
const nodes = (page) => page.evaluate(() => document.querySelector('#flame .flamegraph').dataset.drawn).then(Number);

pageTest('Focus keeps the stacks through a function, in table and flame graph, and its chip removes it', async ({ open }) => {
  const page = await open(FLAME);
  await menuAt(page, 3);
  await page.clickText('.flamegraph-menu button', 'Focus');
  await assertTotal(page, fixture.weight(CPU, has('charge')));
  assert.deepEqual((await tableFunctions(page)).sort(), ['charge', 'main', 'serve', 'sign']);
  assert.equal(page.query().get('focus'), '^charge /srv/api/app\\.py$');
  assert.match(await page.text('.chip'), /only through charge/);
  const again = await open(`?${page.query()}`);
  await assertTotal(again, fixture.weight(CPU, has('charge')));
  await page.click('.chip button');
  await assertTotal(page, fixture.weight(CPU));
});

pageTest('Hide drops the stacks through a function, and both conditions apply together', async ({ open }) => {
  const page = await open(FLAME);
  await menuAt(page, 3);
  await page.clickText('.flamegraph-menu button', 'Hide');
  await assertTotal(page, fixture.weight(CPU, (sample) => !has('charge')(sample)));
  const both = await open(`${FLAME}&focus=charge&ignore=sign`);
  await assertTotal(both, fixture.weight(CPU, (sample) => has('charge')(sample) && !has('sign')(sample)));
  const none = await open(`${FLAME}&focus=charge&ignore=serve`);
  assert.match(await none.text('.nothing'), /without (only through )?/);
});

pageTest('the Menu key opens the menu of the selected node, and Escape returns to it', async ({ open }) => {
  const page = await open(FLAME);
  const copies = await catchCopies(page);
  await page.focus('#flame canvas');
  for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowDown']) await page.press(key);
  await page.press('ContextMenu');
  assert.deepEqual((await items(page)).slice(0, 3), ['Zoom', 'Copy name', 'Copy stack']);
  await page.press('Escape');
  assert.deepEqual(await items(page), []);
  await page.press('ContextMenu');
  await page.press('ArrowDown');
  await page.press('Enter');
  assert.deepEqual(await copies(), ['render_cart']);
  await page.press('ContextMenu');
  for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.press(key);
  const file = '/srv/api/app.py';
  assert.equal((await copies())[1], ['main', 'serve', 'render_cart'].map((name) => `${name}  ${file}`).join('\n'));
});

pageTest('Open function opens its pane', async ({ open }) => {
  const page = await open(FLAME);
  await menuAt(page, 3);
  await page.clickText('.flamegraph-menu button', 'Open function');
  await eventually(async () => assert.equal(await page.text('#function h2'), 'charge'));
});

pageTest('the key i inverts the stacks: the functions with self time are at the root', async ({ open }) => {
  const page = await open(FLAME);
  await page.press('i');
  await page.settled();
  assert.equal(page.query().get('inverted'), '1');
  const leaves = ['charge', 'price', 'query', 'rank', 'render_cart', 'select', 'sign'];
  // The first leaf by name has its callers below it.
  await menuAt(page, 1);
  await page.clickText('.flamegraph-menu button', 'Zoom');
  await eventually(async () => assert.ok((await bar(page)).startsWith(`${leaves[0]}: ${amount(fixture.weight(CPU, ends(leaves[0])))}`), await bar(page)));
  await page.focus('#range');
  await page.evaluate(() => document.activeElement.blur());
  await page.press('i');
  await page.settled();
  assert.equal(page.query().get('inverted'), null);
  assert.equal(page.query().get('zoom'), null);
});

pageTest('Show callers has the function at the root with the weight of its samples', async ({ open }) => {
  const page = await open(FLAME);
  await menuAt(page, 3);
  await page.clickText('.flamegraph-menu button', 'Show callers');
  await page.settled();
  const weight = amount(fixture.weight(CPU, has('charge')));
  await eventually(async () => assert.equal(await bar(page), `CPU: ${weight}`));
  assert.match(await page.text('.chip'), /callers of charge/);
  assert.equal(await nodes(page), 4, 'root, charge, serve and main');
  await page.click('.chip button');
  await eventually(async () => assert.equal(await bar(page), `CPU: ${amount(fixture.weight(CPU))}`));
});

pageTest('consecutive calls of one function become one node', async ({ open }) => {
  const page = await open('?service=&type=cpu&view=flame&libraries=1');
  const before = await nodes(page);
  assert.equal(before, 6, 'root, main, walk three times, work');
  await page.clickText('summary', 'Stacks');
  await page.click('#collapse');
  await page.settled();
  await eventually(async () => assert.equal(await nodes(page), 4));
  assert.equal(await bar(page), `CPU: ${amount(fixture.weight({ service: '', type: 'cpu' }))}`);
  assert.equal(page.query().get('recursion'), 'collapse');
});

pageTest('the open menu has no violation in either theme', async ({ open }) => {
  const page = await open(`${FLAME}&focus=charge&callers=sign&recursion=collapse`, { width: 400, height: 900 });
  await page.evaluate(() => document.querySelector('#flame').scrollIntoView());
  await menuAt(page, 1);
  for (const theme of ['dark', 'light']) {
    await page.emulate({ theme });
    assert.deepEqual(await page.axe(), []);
  }
});
