// The rules of axe-core, in both themes.

import assert from 'node:assert/strict';
import { pageTest } from './session.mjs';

/** Services with few functions: axe-core checks each row. */
const SELECTIONS = {
  both: 'service=api&type=cpu',
  top: 'service=api&type=wall',
  requests: 'service=api&type=cpu&from=-5m',
  compare: 'service=shop&type=cpu',
};

async function assertAccessible(page) {
  const violations = {};
  for (const theme of ['dark', 'light']) {
    await page.emulate({ theme });
    violations[theme] = await page.axe();
  }
  assert.deepEqual(violations, { dark: [], light: [] });
}

for (const [view, selection] of Object.entries(SELECTIONS)) {
  pageTest(`the view ${view} has no violation in either theme`, async ({ open }) => {
    await assertAccessible(await open(`?${selection}&view=${view}`));
  });
}

pageTest('the page without profiles has no violation in either theme', async ({ openEmpty }) => {
  await assertAccessible(await openEmpty());
});

pageTest('an empty selection has no violation in either theme', async ({ open }) => {
  await assertAccessible(await open('?view=both&service=api&type=cpu&label=color%3Dblue'));
});

pageTest('a screen of 400 px has no violation in either theme', async ({ open }) => {
  await assertAccessible(await open('?view=both&service=api&type=cpu', { width: 400, height: 800 }));
});
