// The timeline, and the selection of a range in it.

import assert from 'node:assert/strict';
import { assertTotal, clock, fixture, pageTest } from './session.mjs';
import { WINDOWS } from './fixture.mjs';

const CPU = { service: 'api', type: 'cpu' };

/** Drags from within the window `first` to within the window `last`. The bars of all windows are beside each other. */
async function brush(page, first, last) {
  const bars = await page.evaluate(() => {
    const boxes = [...document.querySelectorAll('#timeline rect.step')].map((bar) => bar.getBoundingClientRect());
    const { top, height } = document.querySelector('#timeline svg').getBoundingClientRect();
    const [left, right] = [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
    return { left, right, y: top + height / 2 };
  });
  const point = (windows) => ({ x: bars.left + (windows / WINDOWS) * (bars.right - bars.left), y: bars.y });
  await page.drag(point(first + 0.4), point(last + 0.6));
}

pageTest('a brush selects whole windows and states which', async ({ open }) => {
  const page = await open(`?view=both&service=api&type=cpu&${fixture.range(0, WINDOWS - 1)}`);
  await brush(page, 3, 5);
  await assertTotal(page, fixture.weight(CPU, ({ window }) => window >= 3 && window <= 5));
  const expected = `${clock(fixture.window(3).fromMs)} – ${clock(fixture.window(5).toMs)}, whole windows`;
  assert.ok((await page.text('#range-note')).includes(expected), `${expected}: ${await page.text('#range-note')}`);
});

pageTest('a brush within one window selects that window', async ({ open }) => {
  const page = await open(`?view=both&service=api&type=cpu&${fixture.range(0, WINDOWS - 1)}`);
  await brush(page, 7, 7);
  await assertTotal(page, fixture.weight({ ...CPU, window: 7 }));
  const expected = `${clock(fixture.window(7).fromMs)} – ${clock(fixture.window(7).toMs)}`;
  assert.ok((await page.text('#range-note')).includes(expected), `${expected}: ${await page.text('#range-note')}`);
});

pageTest('a click on the timeline selects nothing', async ({ open }) => {
  const page = await open(`?view=both&service=api&type=cpu&${fixture.range(2, 9)}`);
  await page.click('#timeline svg');
  await assertTotal(page, fixture.weight(CPU, ({ window }) => window >= 2 && window <= 9));
});

pageTest('the timeline has a scale: cores of CPU time, threads of wall time, bytes in use', async ({ open }) => {
  const ticks = async (query) => (await open(`?view=both&${query}&${fixture.range(2, 9)}`, { width: 400, height: 800 })).texts('#timeline .scale span');
  const cores = Math.max(...Array.from({ length: 8 }, (_, nth) => fixture.weight({ ...CPU, window: nth + 2 }))) / 10e9;
  const [half, whole] = await ticks('service=api&type=cpu');
  assert.ok(whole.endsWith(' cores') && Math.abs(parseFloat(whole) - cores) <= 0.06 * cores, `${cores}: ${whole}`);
  assert.ok(Math.abs(parseFloat(half) - cores / 2) <= 0.06 * cores, half);
  assert.match((await ticks('service=api&type=wall'))[1], / threads$/);
  assert.match((await ticks('service=shop&type=inuse_space'))[1], /^\d+(\.\d+)? [MG]iB$/);
});
