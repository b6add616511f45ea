// What the page shows while it loads, after an error, without profiles, and on a narrow screen.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { amount, assertTotal, fixture, pageTest } from './session.mjs';
import { eventually } from './browser.mjs';
import { link } from './fixture.mjs';

const WIDTH = 400;

pageTest('while another type loads, the numbers of the former type are marked as stale', async ({ open }) => {
  const page = await open('?view=both&service=shop&type=cpu');
  const former = amount(fixture.weight({ service: 'shop', type: 'cpu' }));
  const end = await page.intercept('/api/top', () => sleep(1500));
  await page.choose('#types', 'Wall time');
  await eventually(async () => {
    const top = await page.evaluate(() => {
      const { ariaBusy, classList } = document.querySelector('#top');
      return { ariaBusy, isStale: classList.contains('stale'), ready: document.documentElement.dataset.ready };
    });
    assert.deepEqual(top, { ariaBusy: 'true', isStale: true, ready: 'loading' });
  }, 1000);
  const headline = await page.text('#figures');
  assert.ok(!(headline.includes(former) && headline.includes('wall')), `the CPU time is not shown as wall time: ${headline}`);
  await assertTotal(page, fixture.weight({ service: 'shop', type: 'wall' }));
  assert.equal(await page.count('.stale'), 0);
  await end();
});

pageTest('a late response of an earlier selection does not replace the newer one', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  const end = await page.intercept('/api/top', (request) => (request.url().includes('type=wall') ? sleep(800) : undefined));
  await page.choose('#types', 'Wall time');
  await sleep(200);
  await page.choose('#types', 'CPU');
  await sleep(1000);
  await assertTotal(page, fixture.weight({ service: 'api', type: 'cpu' }));
  await end();
});

pageTest('a click on a row while another type loads keeps the rest of the page', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  const end = await page.intercept('/api/types', () => sleep(800));
  await page.choose('#types', 'Wall time');
  await sleep(300);
  await page.clickText('#top-rows tr', 'charge');
  await assertTotal(page, fixture.weight({ service: 'api', type: 'wall' }));
  assert.equal(page.query().get('function'), 'charge');
  await end();
});

/** Of each view, the request that fills a pane, and the panes that show it. */
const REQUESTS = [
  { view: 'both', path: '/api/top', panes: ['#top'], loading: 'Loading the functions…' },
  { view: 'both', path: '/api/flamegraph', panes: ['#flame'], loading: 'Loading the flame graph…' },
  { view: 'compare', path: '/api/diff', panes: ['#compare > .pane:not(#compare-flame)', '#compare-flame'], loading: 'Loading the comparison…' },
  { view: 'requests', path: '/api/requests', panes: ['#requests'], loading: 'Loading the requests…' },
];
const isGraphVisible = (page) => page.evaluate(() => document.querySelector('.flamegraph canvas')?.checkVisibility({ visibilityProperty: true }) ?? false);

for (const { view, path, panes } of REQUESTS) {
  pageTest(`a failure of ${path} shows its message without the former result, and Retry loads again`, async ({ open }) => {
    const page = await open(`?view=${view}&service=api&type=cpu`);
    const failure = { status: 500, contentType: 'application/json', body: JSON.stringify({ error: 'the index is damaged' }) };
    const end = await page.intercept(path, () => failure);
    await page.choose('#types', 'Wall time');
    await eventually(async () => assert.equal(await page.settled(), 'error'));
    for (const pane of panes) assert.equal(await page.text(pane), 'the index is damaged Retry');
    assert.equal(await isGraphVisible(page), path === '/api/top');
    await page.screenshot(`failure of ${path}`);
    await end();
    await page.clickText(`${panes[0]} button`, 'Retry');
    await eventually(async () => assert.equal(await page.settled(), 'true'));
    assert.equal(await page.text('.problem'), '');
    assert.equal(await isGraphVisible(page), view !== 'requests');
    if (view === 'both') await assertTotal(page, fixture.weight({ service: 'api', type: 'wall' }));
  });
}

for (const { view, path, panes, loading } of REQUESTS) {
  pageTest(`a view that has no earlier response of ${path} says that it loads`, async ({ open }) => {
    const other = view === 'both' ? 'compare' : 'both';
    const page = await open(`?view=${other}&service=api&type=cpu`);
    const end = await page.intercept(path, () => sleep(1500));
    await page.click(`#views [data-value="${view}"]`);
    await eventually(async () => assert.equal(await page.text(panes[0]), loading), 1000);
    const status = await page.evaluate((pane) => {
      const { ariaBusy, classList } = document.querySelector(pane).closest('[aria-busy]');
      return { ariaBusy, isStale: classList.contains('stale') };
    }, panes[0]);
    assert.deepEqual(status, { ariaBusy: 'true', isStale: false });
    await page.settled();
    assert.notEqual(await page.text(panes[0]), loading);
    await end();
  });
}

pageTest('without profiles, the page states where to send them', async ({ openEmpty }) => {
  const page = await openEmpty();
  assert.equal(await page.settled(), 'empty');
  const address = await page.evaluate(() => location.host);
  assert.ok((await page.text('body')).includes(address), `the page has the address ${address}`);
});

for (const view of ['requests', 'both', 'top', 'compare']) {
  pageTest(`the view ${view} fits into a screen of ${WIDTH} px`, async ({ open }) => {
    const page = await open(`?service=shop&type=cpu&view=${view}`, { width: WIDTH, height: 800 });
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= WIDTH, `the document is ${width} px wide`);
    const nameWidth = await page.evaluate(() => document.querySelector('#panes td.name').getBoundingClientRect().width);
    assert.ok(nameWidth >= 80, `the names have ${nameWidth} px`);
  });
}

const topOf = (page, selector) => page.evaluate((chosen) => document.querySelector(chosen).getBoundingClientRect().top, selector);

pageTest(`at ${WIDTH} px, a button shows the controls of filters, and the result begins at three fifths of the height at most`, async ({ open }) => {
  const page = await open('?service=shop&type=cpu&view=both&label=color%3Dblue', { width: WIDTH, height: 800 });
  const controls = ['#filter', '#explore', '#group'];
  const shown = () => page.evaluate((all) => all.filter((one) => document.querySelector(one).checkVisibility()), controls);
  assert.deepEqual(await shown(), []);
  assert.equal(await page.text('.chip b'), 'color');
  await page.click('#show-filters');
  await eventually(async () => assert.deepEqual(await shown(), controls));
  await page.click('#show-filters');
  await eventually(async () => assert.deepEqual(await shown(), []));
  await page.click('.chip .edit');
  await eventually(async () => assert.deepEqual(await shown(), controls));
  assert.deepEqual(await page.evaluate(() => [document.activeElement.id, document.activeElement.value]), ['filter', 'color=blue']);
  await page.click('#show-filters');
  await eventually(async () => assert.deepEqual(await shown(), []));
  const top = await topOf(page, '#panes');
  assert.ok(top <= 470, `the panes begin at ${top} px`);
  await page.screenshot('a narrow screen');
  await page.emulate({ width: 1400, height: 900 });
  assert.deepEqual([await shown(), await page.texts('#show-filters')], [controls, []]);
});

pageTest(`at ${WIDTH} px, the table of one request is above its flame graph`, async ({ open }) => {
  const page = await open(`?span_id=${link(3, 0, false).spanId}`, { width: WIDTH, height: 800 });
  assert.ok(await topOf(page, '#request') < await topOf(page, '#flame'));
  const both = await open('?service=api&type=cpu&view=both', { width: WIDTH, height: 800 });
  assert.ok(await topOf(both, '#flame') < await topOf(both, '#top'));
});
