// The view Requests: from the endpoints to one span beside the others of its endpoint.

import assert from 'node:assert/strict';
import { link } from './fixture.mjs';
import { eventually } from './browser.mjs';
import { exportRequest } from './otlp.mjs';
import { amount, assertTotal, fixture, ownServerUrl, pageTest } from './session.mjs';

const CPU = { service: 'api', type: 'cpu' };
const { traceId, spanId } = link(3, 0, false);
const ofSpan = (sample) => sample.link?.spanId === spanId;

pageTest('a service with spans opens on its endpoints, with the CPU time of each', async ({ open }) => {
  const page = await open('?service=api');
  assert.equal(page.query().get('view'), 'requests');
  const rows = await page.texts('#request-rows tr');
  assert.equal(rows.length, 4, `three endpoints, and samples without one: ${rows}`);
  assert.match(rows[3], /no endpoint/);
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
  // It waited for longer than it used the CPU.
  await assertTotal(page, fixture.weight({ service: 'api', type: 'wall' }, ofSpan));
  assert.match(await page.text('#request'), /mean of 23 others/);
  assert.ok((await page.text('#request-types')).includes(amount(fixture.weight(CPU, ofSpan))));
});

pageTest('the lists of requests have no search of functions, and one request has it', async ({ open }) => {
  for (const [query, count] of [['', 0], ['&endpoint=GET+%2Fcart', 0], [`&span_id=${spanId}`, 1]]) {
    const page = await open(`?service=api&type=cpu&view=requests${query}`);
    assert.equal(await page.count('#search'), count, query);
  }
});

pageTest('a link with a trace id opens its span, with links to the trace in each tracing system', async ({ open }) => {
  const page = await open(`?trace_id=${traceId}&span_id=${spanId}`);
  assert.match(await page.text('#request'), new RegExp(`GET /cart.*${traceId}`, 's'));
  assert.deepEqual(await page.texts('#request .trace-link'), ['Jaeger', 'Tempo eu-1', 'Open the trace']);
  const [jaeger, tempo, zipkin] = await page.evaluate(() => Array.from(document.querySelectorAll('.trace-link'), (link) => link.getAttribute('href')));
  assert.equal(jaeger, `http://localhost:16686/trace/${traceId}?uiFind=${spanId}`);
  assert.equal(zipkin, `http://localhost:9411/zipkin/traces/${traceId}`);
  assert.doesNotMatch(tempo, /["{}]/, 'a URL has no such characters');
  const panes = JSON.parse(new URL(tempo).searchParams.get('panes'));
  assert.deepEqual(panes, { t: { datasource: 'tempo', queries: [{ refId: 'A', query: traceId }] } });
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
  await eventually(async () => assert.match(await page.text('#flame .flamegraph-match'), /^Matched 4/));
  await page.settled();
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

// Functions that wait, and their files, as recorded with CPython 3.11.
const FILES = {
  'Condition.wait': '/usr/lib/python3.11/threading.py', 'Queue.get': '/usr/lib/python3.11/queue.py',
  'SocketIO.readinto': '/usr/lib/python3.11/socket.py', loads: '/usr/lib/python3.11/json/__init__.py', '[lock]': '', '[I/O]': '', '[GC]': '',
};
const FRAMES = { frameType: 'cpython', fileOf: (name) => FILES[name] ?? '/srv/orders/app.py' };
const MS = 1_000_000;

/** Three requests. The first computes more, and waits for a queue. */
function orders(window = 90) {
  const labels = { 'http.route': '/orders', 'http.request.method': 'GET' };
  const of = (request, type, functions, ms) => ({ type, functions: ['main', 'serve', ...functions], weight: ms * MS, labels, link: link(window, request, false) });
  return [
    of(0, 'cpu', ['total'], 120), of(0, 'cpu', ['total', 'loads'], 60), of(1, 'cpu', ['total'], 40), of(2, 'cpu', ['total'], 60),
    of(0, 'off_cpu', ['total', 'Queue.get', 'Condition.wait', '[lock]'], 900), of(0, 'off_cpu', ['total', 'SocketIO.readinto', '[I/O]'], 210),
    of(1, 'off_cpu', ['total', 'SocketIO.readinto', '[I/O]'], 190), of(2, 'off_cpu', ['total', 'SocketIO.readinto', '[I/O]'], 170),
    of(0, 'gc', ['total', '[GC]'], 30), of(0, 'event_loop_lag', ['total'], 50),
  ];
}

/** Forty ended requests of 20 ms, but for two of the sampled ones: the first took 1.3 s, the second 250 ms until it failed. */
function endedOrders() {
  const ended = (type, ms, more) => ({ type, functions: ['[request]'], labels: { endpoint: 'GET /orders', duration: ms * MS }, weight: 1, ...more });
  const failed = ended('requests', 250, { link: link(93, 1, false) });
  return [ended('requests', 20, { weight: 38 }), ended('requests', 1_300, { link: link(93, 0, false) }), failed, { ...failed, type: 'request_errors' }];
}

/** A request that only waits, and one that only computes. */
function stock() {
  const labels = { 'http.route': '/stock', 'http.request.method': 'GET' };
  const functions = ['main', 'serve', 'read_stock'];
  return [
    { type: 'off_cpu', functions: [...functions, '[lock]'], weight: 900 * MS, labels, link: link(91, 0, false) },
    { type: 'cpu', functions, weight: 20 * MS, labels, link: link(91, 1, false) },
  ];
}

/** A failed request of 2 s with 100 ms on the CPU, and no profile of waits. */
function unknownWaits() {
  const span = link(203, 0, false);
  const ended = { functions: ['[request]'], weight: 1, labels: { endpoint: 'GET /report', duration: 2_000 * MS }, link: span };
  return [{ type: 'cpu', functions: ['main', 'serve'], weight: 100 * MS, labels: { endpoint: 'GET /report' }, link: span },
    { ...ended, type: 'requests' }, { ...ended, type: 'request_errors' }];
}

/** More requests than a page of rows. */
const manyOrders = () => Array.from({ length: 230 }, (_, nth) => (
  { type: 'cpu', functions: ['main', 'serve'], weight: 20 * MS, labels: { 'http.route': '/many' }, link: link(94, nth, false) }));

/** A trace with a span of each of two services, and an endpoint that both have. */
function checkout(isCallee) {
  const span = (route, method, ms, window) => ({ type: 'cpu', functions: ['main', 'serve'], weight: ms * MS,
    labels: { 'http.route': route, 'http.request.method': method }, link: link(window, 0, isCallee) });
  return [isCallee ? span('/price', 'POST', 60, 200) : span('/checkout', 'GET', 20, 200), span('/health', 'GET', 10, isCallee ? 202 : 201)];
}

async function send(url, name, samples) {
  const toMs = Math.floor(Date.now() / 1000) * 1000;
  const response = await fetch(`${url}/v1development/profiles`, { method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify(exportRequest({ name, pid: 1, frames: FRAMES }, { fromMs: toMs - 10_000, toMs }, samples)) });
  assert.ok(response.ok, await response.text());
}

const ordersUrl = () => ownServerUrl('orders', async (url) => {
  await send(url, 'orders', orders());
  await send(url, 'counted', [...orders(93), ...endedOrders()]);
  await send(url, 'stock', stock());
  await send(url, 'many', manyOrders());
  await send(url, 'blind', unknownWaits());
  await send(url, 'gateway', checkout(false));
  await send(url, 'pricing', checkout(true));
  await send(url, 'untold', [{ type: 'cpu', functions: ['main', 'work'], weight: 20 * MS, link: link(92, 0, false) }]);
});

pageTest('endpoints show their requests, errors and durations, and a slow span and a failed one have theirs', async ({ openAddress }) => {
  const page = await openAddress(`${await ordersUrl()}/?service=counted&view=requests`);
  await page.settled();
  const [row] = (await page.texts('#request-rows tr')).map((text) => text.replaceAll(/\s+/g, ' ').trim());
  assert.ok(row.startsWith(`GET /orders counted 40 1 ${amount(20 * MS)} ${amount(1_300 * MS)} `), row);
  assert.match(await page.text('#requests'), /Quantiles are of the durations of all requests/);
  // The slow ones first, without a choice.
  await page.clickText('#request-rows td', 'GET /orders');
  await eventually(async () => assert.equal(page.query().get('order'), 'duration'));
  await page.settled();
  const spans = (await page.texts('#request-rows tr')).map((text) => text.replaceAll(/\s+/g, ' ').trim());
  assert.equal(spans.length, 3);
  assert.ok(spans[0].includes(`– ${amount(1_300 * MS)} `) && spans[1].includes(`failed ${amount(250 * MS)} `), spans.join('\n'));
  await page.evaluate(() => history.back());
  await eventually(async () => assert.equal(page.query().get('endpoint'), null));
  await page.settled();
  await page.clickText('#requests th button', 'Errors');
  await page.clickText('#request-rows td', 'GET /orders');
  await eventually(async () => assert.equal(page.query().get('endpoint'), 'GET /orders'));
  await page.settled();
  assert.deepEqual(await page.texts('#request-rows td.failed'), ['failed']);
  await page.clickText('#request-rows td', link(93, 1, false).traceId);
  await eventually(async () => assert.match(await page.text('#request h2'), /GET \/orders · .* · 250 ms · failed$/));
  await page.settled();
});

for (const [width, height] of [[1280, 800], [390, 844]]) {
  pageTest(`at ${width} px, an endpoint is a row of data near the top, with its whole name`, async ({ openAddress }) => {
    const page = await openAddress(`${await ordersUrl()}/?service=counted&view=requests`, { width, height });
    const { row, name, header, overflow } = await page.evaluate(() => {
      const [row, name, header] = ['#request-rows tr', '#request-rows .name div', 'header'].map((selector) => document.querySelector(selector));
      const table = document.querySelector('#requests .scroll');
      return { row: row.getBoundingClientRect().top, name: name.scrollWidth - name.clientWidth, header: header.clientHeight, overflow: table.scrollWidth - table.clientWidth };
    });
    assert.ok(row < height / 3 && header < 100, `the first row is at ${row} px, the header is ${header} px high`);
    assert.deepEqual([name, overflow], [0, 0], 'nothing is cut off');
    const heads = (await page.texts('#requests th')).map((head) => head.replace(' ↓', ''));
    for (const head of ['Endpoint', 'p99', 'Max', 'CPU', 'Waiting']) assert.ok(heads.includes(head), heads.join());
  });
}

pageTest('a list of more than 200 spans says so, and a button shows more', async ({ openAddress }) => {
  const page = await openAddress(`${await ordersUrl()}/?service=many&view=requests&endpoint=%2Fmany`);
  await page.settled();
  assert.equal(await page.count('#request-rows tr'), 200);
  assert.match(await page.text('#requests .more'), /^200 of 230 spans\./);
  await page.clickText('#requests .more button', 'Show more');
  await eventually(async () => assert.equal(await page.count('#request-rows tr'), 230));
  await page.settled();
  assert.doesNotMatch(await page.text('#requests'), /230 of 230/);
});

for (const [size, viewport] of [['', {}], [', on a phone', { width: 400, height: 900 }]]) {
  pageTest('a request has the parts of its CPU time and the reasons of its waits beside the others' + size, async ({ openAddress }) => {
    const page = await openAddress(`${await ordersUrl()}/?span_id=${link(90, 0, false).spanId}&type=cpu`, viewport);
    await page.settled();
    const rows = (await page.texts('#request-types tr')).map((row) => row.replaceAll(/\s+/g, ' ').trim());
    const expected = [
      `On the CPU ${amount(180 * MS)} ${amount(50 * MS)} 3.6 × 18`, `Own code ${amount(120 * MS)} ${amount(50 * MS)} 2.4 × 12`, `Libraries ${amount(60 * MS)} 0 – 6`,
      `Waiting (off CPU) ${amount(1110 * MS)} ${amount(180 * MS)} 6.2 × 111`, `Condition, queue or result ${amount(900 * MS)} 0 – 90`,
      `Network or local socket ${amount(210 * MS)} ${amount(180 * MS)} 1.2 × 21`,
      `Garbage collection ${amount(30 * MS)} 0 – 3`, `Event loop blocked ${amount(50 * MS)} 0 – 5`,
    ];
    // A narrow page has no room for the number of samples.
    assert.deepEqual(rows, viewport.width ? expected.map((row) => row.replace(/ \d+$/, '')) : expected);
    await page.clickText('#request-types td', 'Condition, queue or result');
    await eventually(async () => assert.deepEqual(['type', 'function'].map((key) => page.query().get(key)), ['off_cpu', '[lock]']));
    await eventually(async () => assert.match(await page.text('#function'), /Condition\.wait/));
    assert.deepEqual(await page.texts('#request-types tr.chosen .name'), ['Condition, queue or result']);
    await page.clickText('#request-types td', 'Libraries');
    await eventually(async () => assert.deepEqual(['type', 'function'].map((key) => page.query().get(key)), ['cpu', null]));
    await page.settled();
  });
}

pageTest('two clicks lead to the span that waited longest, and to where it waited', async ({ openAddress }) => {
  const page = await openAddress(`${await ordersUrl()}/?service=stock&view=requests`);
  assert.equal(page.query().get('type'), 'cpu');
  await page.clickText('#request-rows td', 'GET /stock');
  await eventually(async () => assert.equal(page.query().get('order'), 'wait'));
  await page.settled();
  assert.ok((await page.texts('#request-rows tr'))[0].includes(link(91, 0, false).traceId), 'the slow one is the first');
  await page.click('#request-rows td');
  await eventually(async () => assert.deepEqual(['span_id', 'type'].map((key) => page.query().get(key)), [link(91, 0, false).spanId, 'off_cpu']));
  await assertTotal(page, 900 * MS);
  assert.equal(await page.count('#nothing'), 0);
  await page.clickText('#request-types td', 'On the CPU');
  await eventually(async () => assert.equal(await page.text('#nothing'), 'This request has no samples of the type CPU.'));
  assert.equal(await page.count('.remove-filter'), 0, 'without the span there is no request');
});

pageTest('a link to a span opens with the type that has most of its time', async ({ openAddress }) => {
  for (const [request, type, weight] of [[0, 'off_cpu', 900], [1, 'cpu', 20]]) {
    const page = await openAddress(`${await ordersUrl()}/?trace_id=${link(91, request, false).traceId}`);
    assert.equal(page.query().get('type'), type);
    await assertTotal(page, weight * MS);
  }
});

pageTest('a service without endpoints and waits says what records them', async ({ openAddress }) => {
  const complete = await openAddress(`${await ordersUrl()}/?service=orders`);
  assert.doesNotMatch(await complete.text('#requests'), /no endpoint|unknown/);
  const page = await openAddress(`${await ordersUrl()}/?service=untold`);
  assert.match(await page.text('#requests'), /no endpoint\. The middlewares .* http\.route.*Waits are unknown.*SPANPROF_PROFILES=all/s);
});

pageTest('a trace lists its spans with their endpoints and services, and a click opens one', async ({ openAddress }) => {
  const { traceId } = link(200, 0, false);
  const page = await openAddress(`${await ordersUrl()}/?trace_id=${traceId}`);
  await page.settled();
  const rows = await page.texts('#trace-spans tr');
  assert.equal(rows.length, 2, rows.join('\n'));
  assert.match(rows[0], new RegExp(`^POST /price pricing · .* ${amount(60 * MS)} `));
  assert.match(rows[1], new RegExp(`^GET /checkout gateway · .* ${amount(20 * MS)} `));
  await page.clickText('#trace-spans td', 'GET /checkout');
  await eventually(async () => assert.equal(page.query().get('span_id'), link(200, 0, false).spanId));
  await assertTotal(page, 20 * MS);
  assert.equal(await page.count('#trace-spans'), 0, 'one span is no list');
});

pageTest('spans of several services are listed with their endpoints and services, and those of one without', async ({ openAddress }) => {
  const heads = async (service) => {
    const page = await openAddress(`${await ordersUrl()}/?service=${service}&view=requests&endpoint=GET+%2Fhealth`);
    await page.settled();
    return [(await page.texts('#requests th')).slice(0, 2), await page.texts('#request-rows td.endpoint')];
  };
  const [columns, endpoints] = await heads('*');
  assert.deepEqual(columns, ['Start', 'Endpoint']);
  assert.deepEqual(endpoints.toSorted(), ['GET /health gateway', 'GET /health pricing']);
  assert.deepEqual(await heads('gateway'), [['Start', 'CPU ↓'], []]);
});

pageTest('a request that took long and its service say that their waits are unknown', async ({ openAddress }) => {
  const hint = (subject) => `Waits of ${subject} took 2.00 s, its CPU time is 100 ms, and there is no profile of wall time, off-CPU time or locks. SPANPROF_PROFILES=all records them.`;
  const page = await openAddress(`${await ordersUrl()}/?service=blind`);
  assert.deepEqual(await page.texts('#findings .hint'), [hint('blind are unknown: its requests')]);
  await page.clickText('#request-rows td', 'GET /report');
  await eventually(async () => assert.equal(page.query().get('endpoint'), 'GET /report'));
  await page.settled();
  await page.click('#request-rows td');
  await eventually(async () => assert.deepEqual(await page.texts('#request .hint'), [hint('this request are unknown: it')]));
  await page.settled();
  const known = await openAddress(`${await ordersUrl()}/?span_id=${link(93, 0, false).spanId}`);
  assert.equal(await known.count('.hint'), 0, 'its waits are recorded');
});
