'use strict';
// Tail-based retention by the middlewares: which requests keep timestamps is compared with the durations inside and outside of
// the middleware. Every request is labeled with its number.

const test = require('node:test');
const assert = require('node:assert/strict');
const { readAll } = require('./pprof_file.js');
const { program, runNode } = require('./run_node.js');

const LIMIT_MS = 50;

/** Runs the program in a process of its own; the kept requests and what it printed. */
function run(t, ...options) {
  const { stdout, folder } = runNode(t, [program('request_ends.js')], options);
  const kept = new Set();
  const plain = new Set();
  for (const { labels } of readAll(folder, 'cpu')) {
    if (labels.request !== undefined) (labels.end_timestamp_ns === undefined ? plain : kept).add(Number(labels.request));
  }
  return { ...JSON.parse(stdout), kept, plain };
}

/** A failed request, or one that took the limit inside of the middleware, is kept; one that did not outside of it is not. */
function check({ requests, stats, kept, plain }, count, isUnsampled) {
  assert.equal(requests.length, count);
  assert.equal(stats['tail.requests'], count);
  // Samples of an unsampled span before and after its middleware's request belong to no request.
  if (!isUnsampled) assert.deepEqual([stats['tail.undecided'], stats['tail.held_bytes']], [0, 0]);
  // On a busy machine the failed ones may all be slow.
  if (requests.some(({ hasFailed, outside }) => hasFailed && outside < LIMIT_MS)) assert.ok(stats['tail.kept_error'] > 0);
  for (const { number, inside, outside, hasFailed } of requests) {
    // Every request that worked long has samples; one that only waited may have none.
    if (number % 25 === 0) assert.ok(kept.has(number), `${number} is kept`);
    if (inside >= LIMIT_MS) assert.ok(!plain.has(number), `${number} is kept: ${inside} ms`);
    if (!hasFailed && outside < LIMIT_MS) assert.ok(!kept.has(number), `${number} is not kept: ${outside} ms`);
    assert.ok(!(kept.has(number) && plain.has(number)), `of ${number} all samples or none are kept`);
  }
  assert.ok(kept.size >= count / 25 && plain.size > 0);
}

for (const framework of ['express', 'fastify']) {
  test(`${framework}: of a thousand requests exactly the slow and failed ones keep timestamps`, { timeout: 180_000 }, (t) => {
    check(run(t, framework, '1000'), 1000);
  });

  for (const sampler of ['on', 'off']) {
    for (const position of ['inside', 'outside']) {
      test(`${framework}: with spans ${position} and sampling ${sampler} each request is reported once`, { timeout: 180_000 }, (t) => {
        check(run(t, framework, '200', sampler, position), 200, sampler === 'off');
      });
    }
  }
}
