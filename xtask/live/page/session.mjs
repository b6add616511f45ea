// What tests share: the server with the fixture, a server without profiles, the browser. Each is started once per process:
// `node --test` has one process per file, with `--test-isolation=none` one for all files.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Browser, eventually } from './browser.mjs';
import { Fixture } from './fixture.mjs';
import { Server } from './server.mjs';

const started = new Map();

/** Starts a part of the session on first use. */
function once(name, start) {
  if (!started.has(name)) started.set(name, start());
  return started.get(name);
}

after(async () => {
  const parts = await Promise.allSettled(started.values());
  await Promise.all(parts.filter(({ value }) => value?.stop).map(({ value }) => value.stop()));
});

/** The fixture, as soon as the server has its profiles. */
export const fixture = new Fixture(Date.now());

const server = () => once('server', async () => {
  const running = await Server.start();
  await fixture.send(running.url);
  return running;
});
/** The address of the server with the fixture. */
export const serverUrl = async () => (await server()).url;
/** The address of a server of its own, to which `send` has sent profiles. */
export const ownServerUrl = async (name, send) => (await once(name, async () => {
  const running = await Server.start();
  await send(running.url);
  return running;
})).url;
const emptyServer = () => once('empty server', () => Server.start());
const browser = () => once('browser', () => Browser.start());

/**
 * A test of the page. `open(query, viewport)` opens the page of the server with the fixture, `openEmpty` that of a server
 * without profiles, `openAddress` any address. The final state of the tab becomes a screenshot with the name of the test.
 */
export function pageTest(name, options, body) {
  if (!body) return pageTest(name, {}, options);
  return test(name, { timeout: 60_000, ...options }, async () => {
    const pages = [];
    const openAddress = async (address, viewport = {}) => {
      const page = await (await browser()).page(viewport);
      pages.push(page);
      await page.open(address);
      return page;
    };
    const opened = (running, query, viewport) => openAddress(`${running.url}/${query}`, viewport);
    try {
      await body({
        open: async (query = '', viewport = {}) => opened(await server(), query, viewport),
        openAddress,
        openEmpty: async (viewport = {}) => opened(await emptyServer(), '', viewport),
      });
      assert.deepEqual(pages.flatMap((page) => page.errors), [], 'errors that the page did not catch');
    } finally {
      for (const page of pages) {
        await page.screenshot(name);
        await page.close();
      }
    }
  });
}

const SCALES = {
  nanoseconds: [[3600e9, 'h'], [60e9, 'min'], [1e9, 's'], [1e6, 'ms']],
  bytes: [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']],
};

/** A weight as the page shows it: `3.94 min`. */
export function amount(value, unit = 'nanoseconds') {
  const [scale, name] = SCALES[unit].find(([least]) => value >= least);
  const scaled = value / scale;
  return `${scaled.toFixed(scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2)} ${name}`;
}

/** The time of day in the browser: `12:00:10`. */
export function clock(ms) {
  return new Date(ms).toISOString().slice(11, 19);
}

/** The total of the selection in the headline and the flame graph. */
export async function assertTotal(page, weight, unit) {
  await page.settled();
  const expected = amount(weight, unit);
  await eventually(async () => {
    assert.ok((await page.text('#figures')).includes(expected), `the headline has ${expected}: ${await page.text('#figures')}`);
    const bar = await page.text('#flame .flamegraph-about');
    assert.ok(bar.includes(expected), `the bar of the flame graph has ${expected}: ${bar}`);
  });
}

/** The heaviest outermost function in the flame graph of a comparison, which the keyboard selects. */
export async function outermost(page) {
  await page.focus('#compare-flame canvas');
  await page.press('Home');
  await page.press('ArrowDown');
  const [name] = (await page.text('#compare-flame .flamegraph-announcement')).split(', total ');
  return name;
}

/** The functions in the table, top first. */
export const tableFunctions = (page) => page.texts('#top-rows .name div');
