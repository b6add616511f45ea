'use strict';
// The Node.js counterpart of program.py: a service of many requests, each with its own trace and span.

const crypto = require('node:crypto');
const fs = require('node:fs');
const spanprof = require('spanprof');

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const SPAN_ID = 'b7ad6b7169203331';
const SPAN_CPU_SECONDS = 0.3;
const REQUEST_CPU_SECONDS = 0.004;
/** CPU time outside of requests. */
const WARM_UP_CPU_SECONDS = 0.5;

/** CPU time of the process, s: of all threads, also those of the compiler and of the profiler. */
function processCpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** CPU time of this thread, s, updated at each tick of the kernel (proc(5)). Node.js 20 has no call for it. */
function threadCpuSeconds() {
  return Number(fs.readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[0]) / 1e9;
}

/** Uses CPU time; the profile must attribute it to this name. */
function burn(cpuSeconds, clock) {
  const until = clock() + cpuSeconds;
  let total = 0;
  do {
    for (let number = 0; number < 50_000; number++) total = (total * 31 + number) % 65537;
  } while (clock() < until);
  return total;
}

async function main() {
  const [endpoint, protocol, service, requests, figure] = process.argv.slice(2);
  spanprof.start({ serviceName: service, endpoint, protocol, sampleRate: 250, uploadInterval: 60 });
  burn(WARM_UP_CPU_SECONDS, processCpuSeconds);
  spanprof.tagWrapper({ endpoint: '/cart', trace_id: TRACE_ID, span_id: SPAN_ID }, burn, SPAN_CPU_SECONDS, threadCpuSeconds);
  for (let number = 1; number < Number(requests); number++) {
    const labels = {
      endpoint: number % 3 ? '/cart' : '/pay',
      trace_id: crypto.randomBytes(16).toString('hex'),
      span_id: crypto.randomBytes(8).toString('hex'),
    };
    spanprof.tagWrapper(labels, burn, REQUEST_CPU_SECONDS, processCpuSeconds);
  }
  const delivered = await spanprof.flush(20);
  const stats = spanprof.stats();
  await spanprof.stop();
  if (!delivered) throw new Error(`not delivered: ${stats['export.0.last_error']}`);
  fs.writeFileSync(figure, String(stats['samples.cpu_ns']));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
