'use strict';
// The Node.js counterpart of program.py: a service of many requests, each with its own trace and span.

const crypto = require('node:crypto');
const fs = require('node:fs');
const spanprof = require('spanprof');

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const SPAN_ID = 'b7ad6b7169203331';
const SPAN_CPU_SECONDS = 0.3;
const REQUEST_CPU_SECONDS = 0.004;
/** CPU time outside of requests: process.cpuUsage() includes the compiler threads. */
const WARM_UP_CPU_SECONDS = 0.5;

/** Uses CPU time; the profile must attribute it to this name. */
function burn(cpuSeconds) {
  const before = process.cpuUsage();
  let total = 0;
  for (;;) {
    for (let number = 0; number < 10_000; number++) total = (total * 31 + number) % 65537;
    const { user, system } = process.cpuUsage(before);
    if (user + system >= cpuSeconds * 1e6) return total;
  }
}

async function main() {
  const [endpoint, protocol, service, requests, figure] = process.argv.slice(2);
  spanprof.start({ serviceName: service, endpoint, protocol, sampleRate: 250, uploadInterval: 60 });
  burn(WARM_UP_CPU_SECONDS);
  spanprof.tagWrapper({ endpoint: '/cart', trace_id: TRACE_ID, span_id: SPAN_ID }, burn, SPAN_CPU_SECONDS);
  for (let number = 1; number < Number(requests); number++) {
    const labels = {
      endpoint: number % 3 ? '/cart' : '/pay',
      trace_id: crypto.randomBytes(16).toString('hex'),
      span_id: crypto.randomBytes(8).toString('hex'),
    };
    spanprof.tagWrapper(labels, burn, REQUEST_CPU_SECONDS);
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
