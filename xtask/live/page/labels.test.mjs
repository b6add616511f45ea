// The label explorer, the operators of filters, and timeline and flame graph by the value of a label.

import assert from 'node:assert/strict';
import { amount, assertTotal, fixture, ownServerUrl, pageTest } from './session.mjs';
import { exportRequest } from './otlp.mjs';

const ROUTE = 'http.route';
const CPU = { service: 'api', type: 'cpu' };
const BOTH = '?view=both&service=api&type=cpu';
const of = (route) => fixture.weight(CPU, (sample) => sample.labels?.[ROUTE] === route);
const share = (weight) => `${((100 * weight) / fixture.weight(CPU)).toFixed(1)}%`;

pageTest('the explorer lists the keys with their values by weight, and a click filters', async ({ open }) => {
  const page = await open(BOTH);
  await page.click('#explore');
  await page.settled();
  const texts = await page.texts('.label');
  const route = texts.find((text) => text.startsWith(ROUTE));
  const expected = ['/cart', '/pay', '/search'].map((value) => `${value} ${amount(of(value))} · ${share(of(value))}`).join(' ');
  assert.ok(route?.startsWith(`${ROUTE} 3 values ${expected}`), `${expected}: ${route}`);
  assert.ok(texts.some((text) => text.startsWith('process.pid 1 value, resource')), texts.join('\n'));
  await page.clickText('.label li button', '/pay');
  await assertTotal(page, of('/pay'));
  assert.deepEqual(page.query().getAll('label'), [`${ROUTE}=/pay`]);
  assert.equal(page.query().get('labels'), '1');
});

pageTest('labels for the profiler alone are neither listed nor groups', async ({ openAddress }) => {
  const url = await ownServerUrl('ended requests', async (url) => {
    const toMs = Math.floor(Date.now() / 1000) * 1000;
    const frames = { frameType: 'cpython', fileOf: () => '/srv/app.py' };
    const ended = { type: 'requests', functions: ['[request]'], weight: 1, labels: { endpoint: 'GET /cart', duration: 30_000_000 } };
    const samples = [ended, { type: 'cpu', functions: ['main'], weight: 20_000_000, labels: { 'http.route': '/cart' } }];
    const body = JSON.stringify(exportRequest({ name: 'ended', pid: 1, frames }, { fromMs: toMs - 10_000, toMs }, samples));
    assert.ok((await fetch(`${url}/v1development/profiles`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })).ok);
  });
  for (const type of ['cpu', 'requests']) {
    const page = await openAddress(`${url}/?view=both&type=${type}&labels=1`);
    const keys = [...(await page.texts('.label h2')), ...(await page.texts('#group option'))].map((text) => text.split(' ')[0]);
    assert.ok(keys.includes('http.route') && !keys.includes('duration'), keys.join());
    assert.equal(keys.includes('endpoint'), type === 'requests', 'requests have an endpoint instead of a route');
  }
});

pageTest('the operator of a filter is changed in its chip, and its text can be edited', async ({ open }) => {
  const page = await open(`${BOTH}&label=${ROUTE}%3D/pay`);
  await page.choose('.chip .operator', '!=');
  await assertTotal(page, fixture.weight(CPU) - of('/pay'));
  await page.choose('.chip .operator', '=~');
  await assertTotal(page, of('/pay'));
  assert.deepEqual(page.query().getAll('label'), [`${ROUTE}=~/pay`]);
  await page.click('.chip .edit');
  await assertTotal(page, fixture.weight(CPU));
  assert.equal(await page.evaluate(() => document.querySelector('#filter').value), `${ROUTE}=~/pay`);
});

pageTest('a group stacks the timeline by value, and the values are the first frames of the flame graph', async ({ open }) => {
  const page = await open(BOTH);
  await page.choose('#group', ROUTE);
  await page.settled();
  await assertTotal(page, fixture.weight(CPU));
  const none = fixture.weight(CPU, (sample) => !sample.labels);
  const series = ['/cart', '/pay', '/search'].map((value) => `${value} ${share(of(value))}`);
  assert.deepEqual(await page.texts('#series li'), [...series, `none ${share(none)}`]);
  assert.ok(await page.count('#timeline rect.part') >= 4 * 12, 'a part of each value in each window');
  await page.focus('#flame canvas');
  await page.press('ArrowDown');
  await page.press('ArrowDown');
  const tip = await page.text('.flamegraph-tip');
  assert.ok(tip.startsWith(`${ROUTE}=/cart`) && tip.includes(amount(of('/cart'))), tip);
  assert.equal(page.query().get('group'), ROUTE);
  const again = await open(`?${page.query()}&inverted=1`);
  assert.deepEqual(await again.texts('#series li'), [...series, `none ${share(none)}`]);
  await assertTotal(again, fixture.weight(CPU));
  await page.clickText('#series button', '/pay');
  await assertTotal(page, of('/pay'));
});

pageTest('memory in use by a label of the resource has the weight of the newest window', async ({ open }) => {
  const page = await open('?view=both&service=shop&type=inuse_space&group=process.pid');
  const weight = fixture.weight({ service: 'shop', type: 'inuse_space', window: 11 });
  await assertTotal(page, weight, 'bytes');
  assert.deepEqual(await page.texts('#series li'), [`4711 ${amount(weight, 'bytes')}`]);
});

for (const width of [400, 1400]) {
  pageTest(`the explorer and the groups have no violation in either theme at ${width} px`, async ({ open }) => {
    const page = await open(`${BOTH}&labels=1&group=${ROUTE}&label=${ROUTE}!%3D/cart&label=http.request.method%3D~P.*`, { width, height: 900 });
    for (const theme of ['dark', 'light']) {
      await page.emulate({ theme });
      assert.deepEqual(await page.axe(), []);
    }
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no horizontal scrolling');
  });
}
