'use strict';
// The profile of one piece of work, and tail-based retention, against spans whose durations are known.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const pprof = require('./pprof_file.js');
const { runNode } = require('./run_node.js');

const BURN = `
const spanprof = require('spanprof');
const [directory] = process.argv.slice(-1);
// The kernel's count of this thread's time on a processor; threads of the VM have their own.
const cpuMs = () => Number(require('node:fs').readFileSync('/proc/self/task/' + process.pid + '/schedstat', 'utf8').split(' ')[0]) / 1e6;
const burn = (ms) => {
  const until = cpuMs() + ms;
  let sum = 0;
  while (cpuMs() < until) for (let i = 0; i < 200_000; i++) sum += Math.sqrt(i);
  return sum;
};
`;

/** Runs a program with a directory for its files. */
function ran(t, program) {
  const { folder, stdout } = runNode(t, ['-e', BURN + program]);
  return { folder, output: stdout };
}

test('a capture has the samples of its request only', (t) => {
  const { folder } = ran(t, `
    const path = require('node:path');
    function f() { return burn(200); }
    function g() { return burn(20); }
    const wait = () => new Promise((resolve) => setImmediate(resolve));
    spanprof.start({ destinations: [], heap: false, sampleRate: 200 });
    (async () => {
      const beside = (async () => { for (let i = 0; i < 10; i++) { g(); await wait(); } })();
      const captured = await spanprof.capture(async (number) => { await wait(); f(); await wait(); return number; }, 5);
      await beside;
      if (captured.result !== 5 || !captured.flamegraph().includes('burn')) throw new Error('no result');
      captured.save(path.join(directory, 'cpu-1.pb.gz'));
      captured.save(path.join(directory, 'capture.folded'));
      try { captured.save('capture.svg'); throw new Error('accepted'); } catch (error) {
        if (error.name !== 'SpanprofError') throw error;
      }
      const failed = await spanprof.capture(() => { throw new RangeError('mine'); }).catch((error) => error);
      if (failed.message !== 'mine') throw failed;
      await spanprof.stop();
      if ((await spanprof.capture(() => 6)).result !== 6) throw new Error('no result');
    })();
  `);
  const samples = pprof.readAll(folder, 'cpu');
  const through = (name) => samples.filter((sample) => sample.stack.some((frame) => frame.name === name));
  assert.deepEqual(through('g'), []);
  const ns = through('f').reduce((sum, sample) => sum + sample.values.cpu, 0);
  // The first sample may have begun before, and the last period is missing.
  assert.ok(ns > 100e6 && ns < 400e6, `${ns / 1e6} ms`);
  assert.match(fs.readFileSync(path.join(folder, 'capture.folded'), 'utf8'), /;f;/);
});

test('a sent capture reaches the destination under types of its own, and a saved one names the profiles', (t) => {
  const { folder, output } = ran(t, `
    const path = require('node:path');
    const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
    const api = require('@opentelemetry/api');
    new NodeTracerProvider().register();
    function f() { return burn(200); }
    (async () => {
      spanprof.start({ destinations: [], heap: false, offCpu: false, gc: false, sampleRate: 200 });
      const unsent = await (await spanprof.capture(f)).send(0);
      const count = spanprof.stats()['capture.unsent'];
      await spanprof.stop();
      spanprof.start({ destinations: [{ type: 'file', directory }], heap: false, gc: false, offCpu: false, sampleRate: 200, uploadInterval: 3600 });
      await api.trace.getTracer('t').startActiveSpan('root', async (span) => {
        const captured = await spanprof.capture(() => spanprof.tagWrapper({ endpoint: '/cart', password: 'hunter2' }, f));
        const pending = captured.send(30);
        const isPromise = pending instanceof Promise;
        captured.save(path.join(directory, 'saved.folded'));
        console.log(JSON.stringify({ unsent, count, isPromise, sent: await pending, attributes: span.attributes }));
      });
      // The last window is not in the directory yet.
      require('node:fs').mkdirSync(path.join(directory, 'early'));
      for (const name of require('node:fs').readdirSync(directory)) {
        if (name.endsWith('.pb.gz')) require('node:fs').renameSync(path.join(directory, name), path.join(directory, 'early', name));
      }
      await spanprof.stop();
    })();
  `);
  const { unsent, count, isPromise, sent, attributes } = JSON.parse(output);
  assert.deepEqual([unsent, count > 0, isPromise, sent], [false, true, true, true]);
  assert.deepEqual(attributes['profile.type'], ['cpu']);
  assert.equal(attributes['profile.file'], path.join(folder, 'saved.folded'));
  const early = path.join(folder, 'early');
  assert.deepEqual(pprof.readAll(early, 'cpu'), []);
  const samples = pprof.readAll(early, 'capture_cpu');
  assert.ok(samples.some((sample) => sample.labels.endpoint === '/cart'));
  assert.ok(samples.every((sample) => sample.labels.password !== 'hunter2'));
});

test('slow requests keep timestamps and span, and no others', (t) => {
  const { folder, output } = ran(t, `
    const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
    const api = require('@opentelemetry/api');
    const slow = [];
    class Durations extends spanprof.SpanProcessor {
      onEnd(span) {
        super.onEnd(span);
        if (span.duration[0] > 0 || span.duration[1] >= 50e6) slow.push(span.spanContext().spanId);
      }
    }
    new NodeTracerProvider({ spanProcessors: [new Durations()] }).register();
    spanprof.start({ destinations: [{ type: 'file', directory }], heap: false, gc: false, offCpu: false, sampleRate: 500, retention: 'tail', tailDuration: 0.05 });
    const tracer = api.trace.getTracer('t');
    for (let number = 0; number < 200; number++) {
      tracer.startActiveSpan('GET /cart', (span) => {
        if (span.attributes['pyroscope.profile.id'] !== span.spanContext().spanId) throw new Error('no profile.id');
        if (String(span.attributes['profile.type']) !== 'cpu') throw new Error('no profile.type');
        burn(number % 20 === 0 ? 60 : 1);
        span.end();
      });
    }
    spanprof.flush().then(async () => {
      const stats = spanprof.stats();
      await spanprof.stop();
      console.log(JSON.stringify({ slow, ended: stats['tail.requests'], kept: stats['tail.kept_duration'] }));
    });
  `);
  const { slow, ended, kept } = JSON.parse(output);
  assert.ok(slow.length >= 10);
  assert.deepEqual([ended, kept], [200, slow.length]);
  const samples = pprof.readAll(folder, 'cpu');
  const spans = new Set(samples.filter((sample) => sample.labels.end_timestamp_ns > 0).map((sample) => sample.labels.span_id));
  // On a busy machine a short request can be slow by waiting for a processor, without a sample.
  assert.ok(spans.size >= 10 && [...spans].every((span) => slow.includes(span)), `${[...spans]} of ${slow}`);
  assert.ok(samples.every((sample) => (sample.labels.span_id === undefined) === (sample.labels.end_timestamp_ns === undefined)));
});
