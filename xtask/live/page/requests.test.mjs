// The view Requests: from the endpoints to one span beside the others of its endpoint.

import assert from 'node:assert/strict';
import { link } from './fixture.mjs';
import { eventually } from './browser.mjs';
import { amount, assertTotal, fixture, pageTest } from './session.mjs';
import { TRACE_URL } from './server.mjs';

const CPU = { service: 'api', type: 'cpu' };
const { traceId, spanId } = link(3, 0, false);
const ofSpan = (sample) => sample.link?.spanId === spanId;

pageTest('a service with spans opens on its endpoints, with the CPU time of each', async ({ open }) => {
  const page = await open('?service=api');
  assert.equal(page.query().get('view'), 'requests');
  const rows = await page.texts('#request-rows tr');
  assert.equal(rows.length, 4, `three endpoints, and samples without one: ${rows}`);
  const cart = rows.find((row) => row.includes('GET /cart'));
  assert.ok(cart.includes(amount(fixture.weight(CPU, (sample) => sample.labels?.['http.route'] === '/cart'))), cart);
  assert.match(await page.text('#findings'), /spanprof list '\^render_cart\$' http/);
});

pageTest('two clicks lead from an endpoint to one span beside the others', async ({ open }) => {
  const page = await open('?service=api');
  await page.clickText('#request-rows td', 'GET /cart');
  await eventually(async () => assert.equal(page.query().get('endpoint'), 'GET /cart'));
  await page.settled();
  assert.equal(await page.count('#request-rows tr'), 24);
  await page.clickText('#request-rows td', traceId);
  await eventually(async () => assert.equal(page.query().get('span_id'), spanId));
  await assertTotal(page, fixture.weight(CPU, ofSpan));
  assert.match(await page.text('#request'), /mean of 23 others/);
  assert.ok((await page.text('#request-types')).includes(amount(fixture.weight({ service: 'api', type: 'wall' }, ofSpan))));
});

pageTest('a link with a trace id opens its span, with a link to the trace', async ({ open }) => {
  const page = await open(`?trace_id=${traceId}&span_id=${spanId}`);
  assert.match(await page.text('#request'), new RegExp(`GET /cart.*${traceId}`, 's'));
  const address = await page.evaluate(() => document.querySelector('#trace-link').href);
  assert.equal(address, TRACE_URL.replace('{trace_id}', traceId));
});

pageTest('a trace without samples says so, and a button leads back to the endpoints', async ({ open }) => {
  const page = await open('?trace_id=00000000000000000000000000000001');
  assert.match(await page.text('#request'), /No sample belongs to the trace/);
  await page.clickText('#request .remove-filter', 'Remove trace 00000000000000000000000000000001');
  await eventually(async () => assert.equal(await page.count('#request-rows tr') > 0, true));
});

pageTest('a function of a finding is shown in the flame graph', async ({ open }) => {
  const page = await open('?service=api');
  await page.clickText('#findings button', 'render_cart');
  await eventually(async () => assert.equal(page.query().get('function'), 'render_cart'));
  await eventually(async () => assert.match(await page.text('#flame .flamegraph-match'), /^Matched/));
});

pageTest('Back returns from a span to its endpoint', async ({ open }) => {
  const page = await open('?service=api&view=requests&endpoint=GET+%2Fcart');
  await page.clickText('#request-rows td', traceId);
  await eventually(async () => assert.equal(page.query().get('span_id'), spanId));
  await page.evaluate(() => history.back());
  await eventually(async () => assert.equal(page.query().get('span_id'), null));
  await page.settled();
  assert.equal(await page.count('#request-rows tr'), 24);
});
