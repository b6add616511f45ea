'use strict';
// The Node.js counterpart of program.py: fixed work under a fixed label and span; sends its profile over one transport.

const fs = require('node:fs');
const spanprof = require('spanprof');

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const SPAN_ID = 'b7ad6b7169203331';

/** Uses this CPU time; the profile must attribute it to this name. */
function burn(cpuSeconds) {
  const before = process.cpuUsage();
  let total = 0;
  for (;;) {
    for (let number = 0; number < 100_000; number++) total = (total * 31 + number) % 65537;
    const { user, system } = process.cpuUsage(before);
    if (user + system >= cpuSeconds * 1e6) return total;
  }
}

async function main() {
  const [endpoint, protocol, compression, service, ...figures] = process.argv.slice(2);
  spanprof.start({
    serviceName: service,
    endpoint: protocol === 'grpc' ? endpoint : `${endpoint}/v1development/profiles`,
    protocol,
    compression,
    uploadInterval: 60,
    tags: { region: 'eu' },
  });
  spanprof.tagWrapper({ endpoint: '/cart', trace_id: TRACE_ID, span_id: SPAN_ID }, burn, 1);
  burn(0.5);
  if (!(await spanprof.flush(10))) throw new Error(`not delivered: ${JSON.stringify(spanprof.stats())}`);
  for (const file of figures) fs.writeFileSync(file, String(spanprof.stats()['samples.cpu_ns']));
  await spanprof.stop();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
