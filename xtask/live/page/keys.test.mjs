// The keys of the page, and the sheet that lists them.

import assert from 'node:assert/strict';
import { pageTest } from './session.mjs';
import { eventually } from './browser.mjs';

const isOpen = (page) => page.evaluate(() => document.querySelector('#keys').open);

pageTest('the key ? opens the list of keys, and Escape closes it', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu', { width: 400, height: 800 });
  await page.press('?');
  assert.equal(await isOpen(page), true);
  const keys = await page.texts('#keys kbd');
  for (const key of ['/', 'i', '1', '5', '?', 'Enter', 'Menu, Shift+F10']) assert.ok(keys.includes(key), `${key}: ${keys}`);
  for (const theme of ['dark', 'light']) {
    await page.emulate({ theme });
    assert.deepEqual(await page.axe(), []);
  }
  await page.press('3');
  assert.equal(page.query().get('view'), 'both', 'other keys do nothing below the list');
  await page.press('Escape');
  assert.equal(await isOpen(page), false);
});

pageTest('digits choose the view, and / moves to the search, where keys are text', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  await page.press('4');
  await page.settled();
  assert.equal(page.query().get('view'), 'top');
  await page.press('/');
  await page.press('?');
  await page.press('1');
  assert.equal(await page.evaluate(() => document.querySelector('#search').value), '?1');
  assert.equal(await isOpen(page), false);
  assert.equal(page.query().get('view'), 'top');
});

pageTest('a table is one Tab stop, and arrow keys move between its rows and to their buttons', async ({ open }) => {
  const page = await open('?view=both&service=shop&type=cpu');
  assert.equal(await page.count('#top-rows tr[tabindex="0"]'), 1);
  await page.focus('#top-rows tr');
  for (const key of ['ArrowDown', 'End', 'Home', 'ArrowDown']) await page.press(key);
  const row = () => page.evaluate(() => [document.activeElement.rowIndex, document.querySelectorAll('#top-rows tr[tabindex="0"]').length]);
  assert.deepEqual(await row(), [2, 1]);
  await page.press('Enter');
  await eventually(async () => assert.ok(page.query().get('function')));
  assert.deepEqual(await row(), [2, 1], 'the row keeps the focus');
  await page.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.closest('tr')), null);
  await page.settled();
});

pageTest('the button in the header opens the list of keys', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  await page.click('#show-keys');
  await eventually(async () => assert.equal(await isOpen(page), true));
  await page.click('#keys .function-head button');
  assert.equal(await isOpen(page), false);
});
