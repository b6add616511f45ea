// Services, profile types and the headline.

import assert from 'node:assert/strict';
import { amount, assertTotal, fixture, pageTest, tableFunctions } from './session.mjs';
import { eventually } from './browser.mjs';
import { WINDOWS } from './fixture.mjs';

const chosenType = (page) => page.evaluate(() => document.querySelector('#types').selectedOptions[0].textContent);
const chosenService = (page) => page.evaluate(() => document.querySelector('#service').selectedOptions[0].textContent);

pageTest('the page opens with the CPU time of the service that has the most samples', async ({ open }) => {
  const page = await open();
  assert.equal(await chosenService(page), 'shop');
  assert.equal(await chosenType(page), 'CPU');
  await assertTotal(page, fixture.weight({ service: 'shop', type: 'cpu' }));
});

pageTest('all services together have the sum of their CPU time', async ({ open }) => {
  const page = await open('?view=both&service=shop');
  await page.choose('#service', await page.evaluate(() => document.querySelector('#service option[value="*"]').textContent));
  await assertTotal(page, fixture.weight({ type: 'cpu' }));
});

pageTest('the service without a name can be selected alone', async ({ open }) => {
  const page = await open('?view=both&service=shop');
  await page.choose('#service', '(no service.name)');
  await assertTotal(page, fixture.weight({ service: '', type: 'cpu' }));
  assert.deepEqual(await tableFunctions(page), ['work', 'main', 'walk']);
  assert.equal(await chosenService(page), '(no service.name)');
});

pageTest('the select of profile types has names that people use, and shows the chosen type', async ({ open }) => {
  const page = await open('?view=both&service=api');
  await page.choose('#types', 'Wall time');
  await assertTotal(page, fixture.weight({ service: 'api', type: 'wall' }));
  assert.equal(await chosenType(page), 'Wall time');
});

pageTest('memory in use is that of the newest window, beside the allocated memory of all windows', async ({ open }) => {
  const page = await open('?view=both&service=shop&type=inuse_space');
  await assertTotal(page, fixture.weight({ service: 'shop', type: 'inuse_space', window: WINDOWS - 1 }), 'bytes');
  const allocated = amount(fixture.weight({ service: 'shop', type: 'alloc_space' }), 'bytes');
  assert.ok((await page.text('#figures')).includes(allocated), `the headline has ${allocated}`);
});
