// The flame graph: zoom, its address, and weights that the server left out.

import assert from 'node:assert/strict';
import { eventually } from './browser.mjs';
import { RARE } from './fixture.mjs';
import { exportRequest } from './otlp.mjs';
import { ownServerUrl, pageTest } from './session.mjs';

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

for (const [width, height, room] of [[1400, 900, 700], [390, 844, 608]]) {
  pageTest(`at ${width} px, a flame graph is as high as its stacks, and scrolls where they are deeper than its room`, async ({ openAddress }) => {
    const url = await ownServerUrl('depths', async (url) => {
      const toMs = Math.floor(Date.now() / 1000) * 1000;
      const frames = { frameType: 'cpython', fileOf: () => '/srv/app.py' };
      for (const [name, depth] of [['deep', 60], ['shallow', 10]]) {
        const functions = Array.from({ length: depth }, (_, level) => `level_${level}`);
        const body = JSON.stringify(exportRequest({ name, pid: 1, frames }, { fromMs: toMs - 10_000, toMs }, [{ type: 'cpu', functions, weight: 20_000_000 }]));
        assert.ok((await fetch(`${url}/v1development/profiles`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })).ok);
      }
    });
    const heights = async (service) => {
      const page = await openAddress(`${url}/?service=${service}&type=cpu&view=both`, { width, height });
      return page.evaluate(() => {
        const [pane, view, canvas] = ['#flame', '#flame .flamegraph-view', '#flame canvas'].map((selector) => document.querySelector(selector));
        view.scrollTop = 1e4;
        const top = (element) => element.getBoundingClientRect().top;
        return { pane: pane.clientHeight, hidden: view.scrollHeight - view.clientHeight, moved: top(canvas) - top(view) };
      });
    };
    const shallow = await heights('shallow'), deep = await heights('deep');
    assert.ok(shallow.pane < 300 && shallow.hidden === 0, JSON.stringify(shallow));
    assert.ok(deep.pane > shallow.pane && deep.pane <= room && deep.hidden > 0, JSON.stringify(deep));
    assert.equal(deep.moved, 0, 'the canvas stays in view');
  });
}
