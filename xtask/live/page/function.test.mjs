// The pane of a function: callers, callees and source lines.

import assert from 'node:assert/strict';
import { amount, fixture, pageTest } from './session.mjs';
import { eventually } from './browser.mjs';
import { COMMIT, RARE, ROOTS } from './fixture.mjs';
import { SOURCE } from './server.mjs';

const CPU = { service: 'api', type: 'cpu' };
const through = (...names) => fixture.weight(CPU, (sample) => names.every((name) => sample.functions.includes(name)));
const head = (page) => page.text('#function h2');

async function openFunction(page, name) {
  await page.clickText('#top-rows tr', name);
  await eventually(async () => assert.equal(await head(page), name));
  await page.settled();
}

pageTest('a click on a function shows its callers and callees with their weight, and a click follows', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  await openFunction(page, 'charge');
  const [total, self] = [through('charge'), fixture.weight(CPU, (sample) => sample.functions.at(-1) === 'charge')];
  const weight = await page.text('#function-weight');
  assert.ok(weight.includes(`${amount(total)} total`) && weight.includes(`${amount(self)} self`), weight);
  assert.deepEqual(await page.texts('#callers .name div'), ['serve']);
  assert.deepEqual(await page.texts('#callees .name div'), ['sign']);
  assert.ok((await page.text('#callees tr')).startsWith(amount(through('charge', 'sign'))), await page.text('#callees tr'));
  await page.clickText('#callers tr', 'serve');
  await eventually(async () => assert.equal(await head(page), 'serve'));
  await page.settled();
  const callees = ['render_cart', 'charge', 'query', 'select'].sort((one, other) => through('serve', other) - through('serve', one));
  assert.deepEqual(await page.texts('#callees .name div'), callees);
  assert.equal(page.query().get('function'), 'serve');
  assert.equal(page.query().get('file'), '/srv/api/app.py');
});

pageTest('the source has the weight beside the text, and a link with commit, path and line', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu&function=charge');
  const rows = await page.texts('#source-lines tr');
  assert.equal(rows.length, 7, `three lines before and after line 12: ${rows}`);
  const self = fixture.weight(CPU, (sample) => sample.functions.at(-1) === 'charge');
  assert.ok(rows[3].startsWith(amount(self)) && rows[3].endsWith(`12 ${SOURCE[11].trim()}`), rows[3]);
  assert.ok(rows[0].endsWith(SOURCE[8].trim()), rows[0]);
  const link = await page.evaluate(() => document.querySelector('#source-link').href);
  assert.equal(link, `https://git.example/shop/blob/${COMMIT}/api/app.py#L12`);
});

pageTest('without the file, the pane has the weight of the lines and names the option', async ({ open }) => {
  const page = await open(`?view=both&service=shop&type=cpu&function=${RARE}`);
  assert.match(await page.text('#source-note'), /not below the directories of --source-path/);
  const rows = await page.texts('#source-lines tr');
  assert.equal(rows.length, 1);
  const weight = fixture.weight({ service: 'shop', type: 'cpu' }, (sample) => sample.functions.at(-1) === RARE);
  assert.ok(rows[0].startsWith(amount(weight)) && rows[0].endsWith('12'), rows[0]);
  assert.equal(await page.count('#source-link'), 0);
});

pageTest('the outermost function has no caller to follow, and the pane closes', async ({ open }) => {
  const page = await open(`?view=flame&service=shop&type=cpu&function=${ROOTS[0]}`);
  assert.deepEqual(await page.texts('#callers .name div'), ['(outermost function of the stack)']);
  await page.click('#function .function-head button');
  await eventually(async () => assert.equal(await page.count('#function'), 0));
  assert.equal(page.query().get('function'), null);
});

pageTest('a function that the filter excludes is stated', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu&function=charge&label=http.route%3D/cart');
  assert.match(await page.text('#function .nothing'), /No sample here has this function/);
});

for (const [width, height] of [[400, 800], [1100, 800], [1400, 900]]) {
  pageTest(`the pane has no violation in either theme at ${width} px`, async ({ open }) => {
    const page = await open('?view=both&service=api&type=cpu&function=charge', { width, height });
    await page.settled();
    const { flame, pane, overflow } = await page.evaluate(() => ({
      flame: document.querySelector('#flame').getBoundingClientRect().toJSON(),
      pane: document.querySelector('#function').getBoundingClientRect().toJSON(),
      overflow: document.documentElement.scrollWidth - innerWidth,
    }));
    assert.ok(pane.top >= flame.bottom && pane.width === flame.width, 'below the flame graph');
    assert.ok(flame.width > width / 2, `the flame graph is ${flame.width} px wide`);
    assert.ok(overflow <= 0, `the page is ${overflow} px wider than the screen`);
    for (const theme of ['dark', 'light']) {
      await page.emulate({ theme });
      assert.deepEqual(await page.axe(), []);
    }
  });
}
