'use strict';
// Shared by the benchmarks: arguments, child processes that print JSON, intervals, tables, a receiver that accepts everything.

const http = require('node:http');
const path = require('node:path');
const { spawn } = require('node:child_process');

/** Arguments of `cargo xtask bench`: Node.js programs by major, the command line, a folder, the package. */
function given() {
  const all = { nodes: {}, short: false };
  const words = process.argv.slice(2);
  for (let word; (word = words.shift()) !== undefined;) {
    if (word === '--short') all.short = true;
    else if (word.startsWith('--')) all[word.slice(2)] = words.shift();
    else {
      const [major, program] = word.split('=', 2);
      all.nodes[major] = program;
    }
  }
  all.node ??= process.execPath;
  return all;
}

/** Runs a script of this directory to its end; returns the JSON of its last line. Async: a receiver may run in this process. */
function child(node, script, ...words) {
  const { flags = [], processor, env = {} } = typeof words.at(-1) === 'object' ? words.pop() : {};
  const own = [node, ...flags, path.join(__dirname, script), ...words.map(String)];
  const [program, ...rest] = processor === undefined ? own : ['taskset', '--cpu-list', String(processor), ...own];
  return new Promise((resolve, reject) => {
    const running = spawn(program, rest, { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...env } });
    const parts = [];
    running.stdout.on('data', (part) => parts.push(part));
    running.once('error', reject);
    running.once('close', (code, signal) => {
      const said = Buffer.concat(parts).toString().trim();
      if (code !== 0) reject(new Error(`${own.slice(1).join(' ')} ended with ${code ?? signal}: ${said}`));
      else resolve(JSON.parse(said.slice(said.lastIndexOf('\n') + 1)));
    });
  });
}

function median(values) {
  const ordered = [...values].sort((a, b) => a - b);
  const middle = ordered.length >> 1;
  return ordered.length % 2 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
}

/** Median, and the bounds of its 95 % interval by order statistics (no shape of the noise is assumed). */
function medianInterval(values) {
  const ordered = [...values].sort((a, b) => a - b);
  const reach = (1.96 * Math.sqrt(ordered.length)) / 2;
  const low = Math.max(0, Math.floor(ordered.length / 2 - reach));
  const high = Math.min(ordered.length - 1, Math.ceil(ordered.length / 2 + reach) - 1);
  return [median(ordered), ordered[low], ordered[Math.max(low, high)]];
}

/** Prints a Markdown table. */
function table(head, rows) {
  const lines = [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`);
  console.log(`${lines.join('\n')}\n`);
}

/** The same items in random order, so none always follows another. */
function shuffled(things) {
  const left = [...things];
  return things.map(() => left.splice(Math.floor(Math.random() * left.length), 1)[0]);
}

/** Runs `body` with the address of a receiver. It costs the measured process only the sending. */
async function withReceiver(body) {
  const server = http.createServer((request, response) => request.resume().once('end', () => response.end()));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    return await body(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

module.exports = { given, child, median, medianInterval, table, shuffled, withReceiver };
