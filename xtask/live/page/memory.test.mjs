// States over time, such as memory in use: the line with its gaps, growth and age; and the timeline of several profile types.

import assert from 'node:assert/strict';
import { amount, fixture, ownServerUrl, pageTest } from './session.mjs';
import { eventually } from './browser.mjs';
import { WINDOWS } from './fixture.mjs';
import { exportRequest } from './otlp.mjs';

const MIB = 1 << 20;
/** Windows that the process did not send. */
const MISSING = [5, 6];
const CACHE = { name: 'cache', pid: 5000, frames: { frameType: 'cpython', fileOf: () => '/srv/cache/app.py' } };
const MEMORY = '?view=both&service=cache&type=inuse_space';
const LEAK = 'remember';

/** The leak is old and grows; the rest is constant. CPU time and time off the CPU exclude each other, waits for locks do not. */
function samplesOf(window) {
  const state = (name, age, mib) => ({ type: 'inuse_space', functions: ['main', 'serve', name], weight: mib * MIB, labels: { age } });
  const time = (type, seconds) => ({ type, functions: ['main', 'serve'], weight: seconds * 1e9 });
  return [state('parse', 'new', 30), state('open_session', 'survived', 20), state(LEAK, 'old', 10 + 10 * window), time('cpu', 4), time('off_cpu', 6), time('delay', 2)];
}
const leaked = (window) => (10 + 10 * window) * MIB;
const inUse = (window) => leaked(window) + 50 * MIB;

const serverUrl = () => ownServerUrl('memory', async (url) => {
  for (let window = 0; window < WINDOWS; window++) {
    if (MISSING.includes(window)) continue;
    const body = JSON.stringify(exportRequest(CACHE, fixture.window(window), samplesOf(window)));
    const response = await fetch(`${url}/v1development/profiles`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    assert.ok(response.ok, await response.text());
  }
});
const memoryTest = (name, body) => pageTest(name, async ({ openAddress }) => body(async (query, viewport) => openAddress(`${await serverUrl()}/${query}`, viewport)));

const words = (page) => page.text('#state-words');
const stateWords = (values) => ['Lowest', 'last', 'peak'].map((name, nth) => `${name} ${amount(values[nth], 'bytes')}`).join(' ') + ' Growth';
/** Start and end of each part of a line, in steps, and its highest point in per cent of the height. */
const runs = (page, selector) => page.evaluate((chosen) => document.querySelector(chosen).getAttribute('d').split('M').filter(Boolean).map((run) => {
  const points = run.split('L').map((point) => point.split(' ').map(Number));
  return { from: points[0][0], to: points[points.length - 1][0], top: 100 - Math.min(...points.map(([, y]) => y)) };
}), selector);

memoryTest('memory in use is a line in bytes with a gap where no window exists', async (open) => {
  const page = await open(`${MEMORY}&${fixture.range(0, WINDOWS - 1)}`);
  assert.equal(await words(page), stateWords([inUse(0), inUse(11), inUse(11)]));
  assert.match((await page.texts('#timeline .scale span'))[1], /^170 MiB$/);
  assert.equal(await page.count('#timeline rect.step'), 0, 'no bars');
  const [before, after, ...others] = await runs(page, '#timeline path.line');
  assert.deepEqual([before.from, before.to, after.from, after.to, others.length], [0, 50, 70, 120, 0]);
  assert.ok(Math.abs(before.top / after.top - inUse(4) / inUse(11)) < 0.01, `${before.top} ${after.top}`);
});

memoryTest('a filter without memory in a window is 0 and no gap', async (open) => {
  const page = await open(`${MEMORY}&label=age%3Dnone&${fixture.range(0, 4)}`);
  assert.equal(await words(page), 'Lowest 0 last 0 peak 0 Growth');
  assert.deepEqual((await runs(page, '#timeline path.line')).map(({ from, to, top }) => [from, to, top]), [[0, 50, 0]]);
});

memoryTest('the timeline has the samples that focus and hide select', async (open) => {
  const page = await open(`${MEMORY}&focus=${LEAK}`);
  assert.equal(await words(page), stateWords([leaked(0), leaked(11), leaked(11)]));
  await page.clickText('.chip button', '×');
  await eventually(async () => assert.equal(await words(page), stateWords([inUse(0), inUse(11), inUse(11)])));
  const hidden = await open(`${MEMORY}&ignore=${LEAK}`);
  assert.equal(await words(hidden), stateWords([50 * MIB, 50 * MIB, 50 * MIB]));
});

memoryTest('a group by age stacks the ages from new to old, in the timeline and in the flame graph', async (open) => {
  const page = await open(MEMORY);
  await page.choose('#group', 'age');
  await page.settled();
  assert.deepEqual(await page.texts('#series li'), [`new ${amount(30 * MIB, 'bytes')}`, `survived ${amount(20 * MIB, 'bytes')}`, `old ${amount(leaked(11), 'bytes')}`]);
  assert.equal(await page.count('#timeline path.area.part'), 3);
  const names = [];
  await page.focus('#flame canvas');
  await page.press('Home');
  await page.press('ArrowDown');
  // The arrow leads to the heaviest value.
  names.push((await page.text('#flame .flamegraph-announcement')).split(', total ')[0]);
  for (const key of ['ArrowLeft', 'ArrowLeft']) {
    await page.press(key);
    names.unshift((await page.text('#flame .flamegraph-announcement')).split(', total ')[0]);
  }
  assert.deepEqual(names, ['age=new', 'age=survived', 'age=old']);
  await page.clickText('#series button', 'old');
  await eventually(async () => assert.equal(await words(page), stateWords([leaked(0), leaked(11), leaked(11)])));
  assert.deepEqual(page.query().getAll('label'), ['age=old']);
});

memoryTest('Growth compares the first third of the range with the last, and Back returns', async (open) => {
  const page = await open(`${MEMORY}&${fixture.range(0, WINDOWS - 1)}`);
  await page.click('#growth');
  await page.settled();
  const basis = await page.text('#compare-basis');
  assert.ok(basis.startsWith(`${amount(inUse(3), 'bytes')} → ${amount(inUse(11), 'bytes')}`), basis);
  const rows = await page.texts('#compare-rows tr');
  assert.ok(rows.length === 1 && rows[0].includes(LEAK) && rows[0].includes('+200.0%'), `only the leak is significant: ${rows}`);
  assert.deepEqual(['view', 'base', 'absolute'].map((name) => page.query().get(name)), ['compare', 'thirds', '1']);
  await page.evaluate(() => history.back());
  await eventually(async () => assert.equal(page.query().get('view'), 'both'));
  await page.settled();
  assert.equal(await page.count('#compare'), 0);
  assert.equal(await words(page), stateWords([inUse(0), inUse(11), inUse(11)]));
});

memoryTest('types of times are stacked, contained ones are lines, and an entry selects its type', async (open) => {
  const page = await open('?view=both&service=cache&type=cpu');
  await page.choose('#group', 'profile type (timeline)');
  await page.settled();
  const windows = WINDOWS - MISSING.length;
  const series = await page.texts('#series li');
  assert.deepEqual(series, ['cpu 40.0%', 'off_cpu 60.0%', `delay ${amount(2e9 * windows)}`, 'delay: not added, since CPU time and time off the CPU contain it']);
  assert.deepEqual(await page.texts('#timeline .scale span'), ['0.5 threads', '1 threads']);
  const [line] = await runs(page, '#timeline path.line');
  assert.ok(Math.abs(line.top - 0.2 * 92) < 1, `2 of 10 seconds: ${line.top}`);
  assert.equal(page.query().get('by'), 'type');
  await page.clickText('#series button', 'off_cpu');
  await page.settled();
  assert.deepEqual([page.query().get('type'), await page.texts('#series li')], ['off_cpu', series]);
  await page.choose('#types', 'In use');
  await page.settled();
  assert.equal(await page.count('#series'), 0, 'memory has no times');
});

memoryTest('the page says what old profiles lack for what is shown', async (open) => {
  const page = await open(MEMORY);
  assert.equal(await page.text('#hours-note'), '');
  const lacking = (members) => async (request) => {
    const response = await fetch(request.url());
    return { contentType: 'application/json', body: JSON.stringify({ ...await response.json(), ...members }) };
  };
  const end = await page.intercept('/api/timeline', lacking({ resolution_ms: 60_000 }));
  await page.click('#refresh');
  await eventually(async () => assert.equal(await page.text('#hours-note'), 'Older profiles are kept by the hour: the timeline is exact to a minute.'));
  await end();
  const endTop = await page.intercept('/api/top', lacking({ resolution_ms: 3_600_000, omitted_labels: ['user'] }));
  await page.click('#refresh');
  await eventually(async () => assert.equal(await page.text('#hours-note'),
    'Older profiles are kept by the hour: the range is rounded to whole hours; samples have no label user.'));
  await endTop();
});

for (const width of [400, 1400, 3840]) {
  memoryTest(`the timelines of ages and of types fit ${width} px, without a violation in either theme`, async (open) => {
    for (const query of [`${MEMORY}&group=age`, '?view=both&service=cache&type=cpu&by=type']) {
      const page = await open(query, { width, height: width === 3840 ? 2160 : 900 });
      for (const theme of ['dark', 'light']) {
        await page.emulate({ theme });
        assert.deepEqual(await page.axe(), []);
        await page.screenshot(`timeline ${theme} ${width} ${query.length}`);
      }
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no horizontal scrolling');
    }
  });
}
