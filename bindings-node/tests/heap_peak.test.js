'use strict';
// The objects in use that a killed process leaves behind.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const timers = require('node:timers/promises');
const zlib = require('node:zlib');
const { execFileSync, spawn } = require('node:child_process');
const { once } = require('node:events');
const pprof = require('./pprof_file.js');
const { temporaryDirectory } = require('./run_node.js');

/** Resident memory at which the program is killed, bytes. */
const LIMIT = 250e6;
const KILLS = Number(process.env.HEAP_PEAK_KILLS ?? 2);
const PAGE = Number(execFileSync('getconf', ['PAGESIZE'], { encoding: 'utf8' }));

function residentBytes(pid) {
  return Number(fs.readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ')[1]) * PAGE;
}

/** The newer of the two records in a file; its format is in core/profile/src/heap_peak.rs. */
function newestRecord(file) {
  const bytes = fs.readFileSync(file);
  const number = (offset) => Number(bytes.readBigUInt64LE(offset));
  const [older, newer] = [4096, 4096 + number(32)].sort((a, b) => number(a) - number(b));
  assert.ok(number(newer) > 0, `records ${number(older)} and ${number(newer)}`);
  const profile = `${file}.pb.gz`;
  fs.writeFileSync(profile, zlib.gzipSync(bytes.subarray(newer + 72, newer + 72 + number(newer + 56))));
  return {
    processId: bytes.readUInt32LE(12),
    timeMs: number(newer + 8) / 1e6,
    liveBytes: number(newer + 16),
    residentBytes: number(newer + 32),
    samples: pprof.read(profile),
  };
}

/** Bytes in use under each function. */
function byFunction(samples) {
  const sums = {};
  for (const { stack, values } of samples) {
    for (const name of new Set(stack.map((frame) => frame.name))) sums[name] = (sums[name] ?? 0) + values.inuse_space;
  }
  return sums;
}

async function killAtLimit(t) {
  const folder = temporaryDirectory(t);
  const child = spawn(process.execPath, [path.join(__dirname, 'programs', 'leaks.js'), folder], { stdio: 'inherit' });
  const ended = once(child, 'exit');
  let resident = 0;
  while (child.exitCode === null && resident < LIMIT) {
    await timers.setTimeout(10);
    resident = residentBytes(child.pid);
  }
  child.kill('SIGKILL');
  const killedMs = Date.now();
  assert.deepEqual(await ended, [null, 'SIGKILL']);
  const [name] = fs.readdirSync(folder);
  const record = newestRecord(path.join(folder, name));
  assert.equal(record.processId, child.pid);
  const bytes = byFunction(record.samples);
  assert.ok(bytes.remember > 0.5 * record.liveBytes, JSON.stringify(bytes));
  assert.ok(record.liveBytes < 1.2 * resident && record.residentBytes < 1.2 * resident, JSON.stringify({ ...record, samples: 0 }));
  return { age: killedMs - record.timeMs, record };
}

test('a process killed at a memory limit leaves the leaking function first', async (t) => {
  const ages = [];
  for (let kill = 0; kill < KILLS; kill++) ages.push((await killAtLimit(t)).age);
  t.diagnostic(`${ages.length} recovered, at most ${Math.round(Math.max(...ages))} ms old`);
  // A second at most on an idle machine; a busy one may delay the drain thread.
  for (const age of ages) assert.ok(age > -100 && age < 20_000, `${ages}`);
});
