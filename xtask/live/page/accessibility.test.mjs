// The rules of axe-core, in both themes.

import assert from 'node:assert/strict';
import { link } from './fixture.mjs';
import { pageTest } from './session.mjs';

const NARROW = { width: 400, height: 800 };
/** Of each test, the address and the size. Services with few functions: axe-core checks each row. */
const VIEWS = {
  'the view both': ['view=both&service=api&type=cpu'],
  'the view top': ['view=top&service=api&type=wall'],
  'the flame graph alone': ['view=flame&service=api&type=cpu'],
  'the view requests': ['view=requests&service=api&type=cpu&from=-5m'],
  'the list of spans': ['view=requests&service=api&type=cpu&endpoint=GET+%2Fcart'],
  'one request': [`span_id=${link(3, 0, false).spanId}`],
  'the view compare': ['view=compare&service=shop&type=cpu'],
  'an empty selection': ['view=both&service=api&type=cpu&label=color%3Dblue'],
  'an empty comparison': ['view=compare&service=api&type=cpu&label=color%3Dblue'],
  'the view both at 400 px': ['view=both&service=api&type=cpu', NARROW],
  'the view requests at 400 px': ['view=requests&service=api&type=cpu&from=-5m', NARROW],
  'one request at 400 px': [`span_id=${link(3, 0, false).spanId}`, NARROW],
  'the view compare at 400 px': ['view=compare&service=shop&type=cpu', NARROW],
};

/** The dark theme has a screenshot of its own; that of the test has the light one. */
async function assertAccessible(page, name) {
  const violations = {};
  for (const theme of ['dark', 'light']) {
    await page.emulate({ theme });
    violations[theme] = await page.axe();
    if (theme === 'dark') await page.screenshot(`${name} dark`);
  }
  assert.deepEqual(violations, { dark: [], light: [] });
}

for (const [name, [query, viewport]] of Object.entries(VIEWS)) {
  pageTest(`${name} has no violation in either theme`, async ({ open }) => assertAccessible(await open(`?${query}`, viewport), name));
}

for (const [view, path] of [['both', '/api/flamegraph'], ['compare', '/api/diff']]) {
  pageTest(`the error of ${path} has no violation in either theme`, async ({ open }) => {
    const page = await open(`?view=${view}&service=api&type=cpu`);
    const end = await page.intercept(path, () => ({ status: 500, contentType: 'application/json', body: JSON.stringify({ error: 'the index is damaged' }) }));
    await page.click('#refresh');
    await page.settled();
    assert.match(await page.text('.problem'), /the index is damaged/);
    await assertAccessible(page, `error of ${path}`);
    await end();
  });
}

pageTest('the page without profiles has no violation in either theme', async ({ openEmpty }) => {
  await assertAccessible(await openEmpty(), 'without profiles');
});
