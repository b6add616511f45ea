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
  app.get('/other', (_request, response) => response.send('other'));
  const server = await listening(app);
  const address = `http://127.0.0.1:${server.address().port}`;
  try {
    assert.equal(await (await fetch(`${address}/other`)).text(), 'other');
    await check(address, '/debug/pprof');
    await check(address, '/internal/profiles');
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
  } finally {
    await app.close();
  }
});
