'use strict';
// Blocks of the event loop of 20 to 110 ms, reported against measured. Prints Markdown.

const path = require('node:path');
const { execFileSync } = require('node:child_process');
const { child, given, median, table } = require('./measuring.js');

async function main() {
  const { command, folder, node, short } = given();
  const lengths = Array.from({ length: 10 }, (_, at) => 20 + at * 10);
  const blocks = await child(node, 'lag_run.js', folder, short ? 1 : 5, ...lengths);
  const top = (directory, ...words) =>
    JSON.parse(execFileSync(command, ['top', directory, '--type', 'event_loop_lag', '--limit', '0', '--json', ...words], { encoding: 'utf8' }));
  const rows = lengths.map((length) => {
    const own = blocks.filter((block) => block.length === length);
    const seen = own.map(({ number, tookNs, traceId }) => {
      const directory = path.join(folder, String(number));
      const all = top(directory);
      const inBlock = all.rows.find((row) => row.function === 'block')?.cum ?? 0;
      return { offMs: (all.total - tookNs) / 1e6, stack: inBlock / all.total, linked: top(directory, '--trace-id', traceId).total / all.total };
    });
    const offs = seen.map((one) => one.offMs);
    const share = (key) => `${(100 * median(seen.map((one) => one[key]))).toFixed(1)}`;
    return [length, own.length, median(offs).toFixed(3), `${Math.min(...offs).toFixed(3)} … ${Math.max(...offs).toFixed(3)}`, share('stack'), share('linked')];
  });
  console.log('Reported length minus measured length of the same turn of the loop; sampled at 1000 Hz, blocks above 10 ms reported.\n');
  table(['block, ms', 'blocks', 'off, ms: median', 'range', 'in its function, %', 'under its trace, %'], rows);
}

main();
