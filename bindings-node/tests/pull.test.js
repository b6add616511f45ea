'use strict';
// Handlers of `/debug/pprof` in Express and Fastify: profiles, refusals, and an event loop that goes on meanwhile.

const test = require('node:test');
const assert = require('node:assert/strict');
const zlib = require('node:zlib');
const timers = require('node:timers/promises');
const spanprof = require('spanprof');

const TOKEN = 'pull-token-of-this-test';
const authorized = { headers: { authorization: `Bearer ${TOKEN}` } };

test.before(() => assert.ok(spanprof.start({ serviceName: 'shop', pullToken: TOKEN, sampleRate: 100 })));
test.after(() => spanprof.stop());

function burnForPull(milliseconds) {
  const end = Date.now() + milliseconds;
  let sum = 0;
  while (Date.now() < end) for (let turn = 0; turn < 1e5; turn++) sum += turn % 7;
  return sum;
}

async function check(address, prefix) {
  const get = (path, options = authorized) => fetch(`${address}${path}`, options);
  assert.equal((await get(`${prefix}/profile?seconds=0.01`, {})).status, 401);
  for (const seconds of ['abc', '-1', '1e9']) assert.equal((await get(`${prefix}/profile?seconds=${seconds}`)).status, 400);
  assert.equal((await get(`${prefix}/nothing`)).status, 404);
  assert.match(await (await get(`${prefix}/`)).text(), /<table>/);

  let pulled;
  // A short pull of the loop below may precede.
  const pull = (async () => {
    do pulled = await get(`${prefix}/profile?seconds=1.5`); while (pulled.status === 429);
  })();
  let busy = 0;
  while (pulled === undefined || pulled.status === 429) {
    burnForPull(20);
    const { status } = await get(`${prefix}/profile?seconds=0.001`);
    if (status === 429) busy++;
    await timers.setTimeout(5);
  }
  await pull;
  assert.equal(pulled.status, 200);
  assert.ok(busy > 0, 'another pull is refused, by an event loop that is not blocked');
  const profile = zlib.gunzipSync(Buffer.from(await pulled.arrayBuffer())).toString('latin1');
  assert.ok(profile.includes('burnForPull'), 'the profile has the function that used the CPU');
}

/** The control operations, whose bodies parsers of the application may have read. */
async function checkControl(address, path) {
  const send = (method, body, headers = { 'content-type': 'application/json' }) =>
    fetch(`${address}${path}`, { method, body, headers: { ...authorized.headers, ...headers } });
  for (const [rate, headers] of [[90, undefined], [100, { 'content-type': 'text/plain' }], [100, {}]]) {
    const changed = await send('PATCH', JSON.stringify({ sample_rate: rate }), headers);
    assert.equal(changed.status, 200, await changed.text());
    assert.equal(spanprof.stats()['config.sample_rate'], String(rate));
  }
  assert.equal((await send('PATCH', `{"sample_rate": 50}${' '.repeat(65_536)}`, {})).status, 413);
  assert.equal((await send('GET')).status, 200);
  assert.equal((await fetch(`${address}${path}`, { method: 'PATCH', body: '{}' })).status, 401);
  const burst = await fetch(`${address}${path}/burst?seconds=1`, { ...authorized, method: 'POST' });
  assert.equal(burst.status, 200, await burst.text());
}

/** The index page under its address without the final slash, and its links. */
async function checkIndex(address, prefix) {
  const index = await fetch(`${address}${prefix}`, authorized);
  assert.equal(index.url, `${address}${prefix}/`);
  const [, link] = /href="(allocs)"/.exec(await index.text());
  const kept = Array.from({ length: 200 }, () => new Array(10_000).fill(1.5));
  await spanprof.flush();
  // Without the key `pull`: the handler sums up allocations.
  const deadline = Date.now() + 60_000;
  for (;;) {
    for (let turn = 0; turn < 200; turn++) kept[turn] = new Array(10_000).fill(turn);
    const response = await fetch(new URL(link, index.url), authorized);
    assert.equal(response.status, 200);
    const profile = zlib.gunzipSync(Buffer.from(await response.arrayBuffer())).toString('latin1');
    if (profile.includes('checkIndex')) break;
    assert.ok(Date.now() < deadline, 'the profile has the function that allocates');
  }
}

/** A client that leaves ends its pull long before its 60 s. */
async function checkLeaving(address, prefix) {
  const status = async () => (await fetch(`${address}${prefix}/profile?seconds=0.001`, authorized)).status;
  do {
    const leaving = new AbortController();
    const left = fetch(`${address}${prefix}/profile?seconds=60`, { ...authorized, signal: leaving.signal }).catch(() => {});
    await timers.setTimeout(300);
    const isBusy = await status() === 429;
    leaving.abort();
    await left;
    if (isBusy) break;
  } while (true);
  const deadline = Date.now() + 40_000;
  while (await status() === 429) {
    assert.ok(Date.now() < deadline, 'the pull has ended');
    await timers.setTimeout(50);
  }
}

async function listening(app) {
  const server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  return server;
}

test('express: profiles are served under /debug/pprof and under another path', { timeout: 180_000 }, async () => {
  const express = require('express');
  const app = express();
  app.use(spanprof.pprofMiddleware());
  app.use('/internal/profiles', spanprof.pprofMiddleware());
  app.use('/parsed', express.json(), spanprof.pprofMiddleware());
  app.get('/other', (_request, response) => response.send('other'));
  const server = await listening(app);
  const address = `http://127.0.0.1:${server.address().port}`;
  try {
    assert.equal(await (await fetch(`${address}/other`)).text(), 'other');
    await check(address, '/debug/pprof');
    await check(address, '/internal/profiles');
    for (const path of ['/debug/spanprof', '/internal/profiles/spanprof', '/parsed/spanprof']) await checkControl(address, path);
    for (const prefix of ['/debug/pprof', '/internal/profiles']) await checkIndex(address, prefix);
    await checkLeaving(address, '/debug/pprof');
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

test('fastify: profiles are served under /debug/pprof and under another path', { timeout: 180_000 }, async () => {
  const app = require('fastify')();
  app.register(spanprof.pprofPlugin);
  app.register(spanprof.pprofPlugin, { prefix: '/internal/profiles' });
  app.get('/other', async () => 'other');
  const address = await app.listen({ port: 0, host: '127.0.0.1' });
  try {
    assert.equal(await (await fetch(`${address}/other`)).text(), 'other');
    await check(address, '/debug/pprof');
    await check(address, '/internal/profiles');
    for (const path of ['/debug/spanprof', '/internal/profiles/spanprof']) await checkControl(address, path);
    for (const prefix of ['/debug/pprof', '/internal/profiles']) await checkIndex(address, prefix);
  } finally {
    await app.close();
  }
});
