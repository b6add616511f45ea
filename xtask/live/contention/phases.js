'use strict';
// Six phases of `PHASE_MS` of CPU time, each under a label and in a span whose id is the number of the phase. Prints `phase
// NUMBER LEAST MOST`, the kernel's CPU time of the main thread (schedstat, ns) within the label and around the span, then `stats
// JSON`. The settings are environment variables.
const fs = require('node:fs');
const { context, trace } = require('@opentelemetry/api');
const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks');
const spanprof = require('spanprof');

const PHASE_NS = Number(process.env.PHASE_MS) * 1e6;

const ran = () => Number(fs.readFileSync('/proc/self/schedstat', 'latin1').split(' ')[0]);

/** The kernel's figure is of the last tick, or of the last wait. */
function ranExactly() {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
  return ran();
}

function burn(ns) {
  const end = ran() + ns;
  let total = 0;
  while (ran() < end) for (let number = 0; number < 300_000; number++) total += number & 7;
  return total;
}

/** Burns CPU time under the label and in the span of a phase; returns the kernel's CPU time within and around them. */
function phase(number, ns) {
  const began = ranExactly();
  const ids = { traceId: String(number).padStart(32, '0'), spanId: String(number).padStart(16, '0'), traceFlags: 1 };
  const inSpan = trace.setSpanContext(context.active(), ids);
  const least = context.with(inSpan, () =>
    spanprof.tagWrapper({ phase: number }, () => {
      const before = ranExactly();
      burn(ns);
      return ranExactly() - before;
    }),
  );
  return [least, ranExactly() - began];
}

async function main() {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  spanprof.start();
  // Loads and compiles what scopes and spans need, outside of the phases.
  phase(99, 1e6);
  for (let number = 1; number <= 6; number++) {
    console.log('phase', number, ...phase(number, PHASE_NS));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  console.log('stats', JSON.stringify(spanprof.stats()));
  await spanprof.stop();
}

main();
