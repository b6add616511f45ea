// Filters by label, trace and span, and selections without samples.

import assert from 'node:assert/strict';
import { assertTotal, fixture, pageTest, tableFunctions } from './session.mjs';
import { eventually } from './browser.mjs';
import { link } from './fixture.mjs';

const ROUTE = 'http.route';
const CPU = { service: 'api', type: 'cpu' };
const ofRoute = (route) => (sample) => sample.labels?.[ROUTE] === route;

pageTest('a filter key=value selects the samples with that value', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  await page.type('#filter', `${ROUTE}=/pay`, { enter: true });
  await assertTotal(page, fixture.weight(CPU, ofRoute('/pay')));
  assert.match((await page.texts('.chip')).join(), /http\.route.*\/pay/);
  assert.deepEqual(page.query().getAll('label'), [`${ROUTE}=/pay`]);
});

pageTest('a filter key!=value excludes the samples with that value', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  await page.type('#filter', `${ROUTE}!=/pay`, { enter: true });
  await assertTotal(page, fixture.weight(CPU, (sample) => !ofRoute('/pay')(sample)));
});

pageTest('a filter key=~expression selects the values that match', async ({ open }) => {
  const page = await open('?view=both&service=api&type=cpu');
  await page.type('#filter', `${ROUTE}=~/(cart|search)`, { enter: true });
  await assertTotal(page, fixture.weight(CPU, (sample) => ofRoute('/cart')(sample) || ofRoute('/search')(sample)));
});

pageTest('the button of a chip removes its filter and keeps the others', async ({ open }) => {
  const page = await open(`?view=both&service=api&type=cpu&label=${ROUTE}%3D/pay&label=http.request.method%3DPOST`);
  assert.equal(await page.count('.chip'), 2);
  await page.click('.chip:first-child button');
  await eventually(async () => assert.deepEqual(page.query().getAll('label'), ['http.request.method=POST']));
  await page.settled();
  assert.equal(await page.count('.chip'), 1);
});

pageTest('a link with a trace id shows the samples of the trace without a service in the link', async ({ open }) => {
  const { traceId } = link(5, 1, false);
  const page = await open(`?view=both&trace_id=${traceId}`);
  await assertTotal(page, fixture.weight(CPU, (sample) => sample.link?.traceId === traceId));
  assert.deepEqual((await tableFunctions(page)).sort(), ['charge', 'main', 'serve', 'sign']);
});

pageTest('an empty selection names the filter that excludes every sample, and a button removes it', async ({ open }) => {
  const page = await open(`?view=both&service=api&type=cpu&label=${ROUTE}%3D/pay&label=color%3Dblue`);
  const text = await page.text('.nothing');
  assert.ok(text.includes('color=blue'), text);
  await page.clickText('button.remove-filter', 'Remove color=blue');
  await assertTotal(page, fixture.weight(CPU, ofRoute('/pay')));
  assert.equal(await page.text('.nothing'), '');
  assert.deepEqual(page.query().getAll('label'), [`${ROUTE}=/pay`]);
});

pageTest('an empty selection by a trace id has a button that removes the trace', async ({ open }) => {
  const page = await open(`?view=both&service=api&type=cpu&trace_id=${'0'.repeat(31)}1`);
  assert.ok((await page.text('.nothing')).includes('trace'), 'it names the trace');
  await page.click('button.remove-filter');
  await assertTotal(page, fixture.weight(CPU));
});

pageTest('a trace id in the filter is searched in all services', async ({ open }) => {
  const { traceId } = link(5, 1, false);
  const page = await open('?view=both&service=worker&type=cpu&from=-5m');
  await page.type('#filter', traceId, { enter: true });
  await assertTotal(page, fixture.weight(CPU, (sample) => sample.link?.traceId === traceId));
  assert.equal(page.query().get('service'), '*');
});

pageTest('a link to a service without profiles names it, and a button shows all services', async ({ open }) => {
  const page = await open('?view=both&service=chekout&type=cpu');
  assert.match(await page.text('#nothing'), /No profile here is of the service “chekout”/);
  await page.clickText('button.remove-filter', 'Show all services');
  await eventually(async () => assert.equal(page.query().get('service'), '*'));
});
