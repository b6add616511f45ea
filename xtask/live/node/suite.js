'use strict';
// Shared by the programs of this directory: start, profile directory, failure.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawn } = require('node:child_process');

const folders = [];
process.once('exit', () => folders.forEach((made) => fs.rmSync(made, { recursive: true, force: true })));

/** A directory that is deleted at exit. */
function folder() {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-live-'));
  folders.push(made);
  return made;
}

/** Settings of `start` with files in a directory as destination. */
function into(directory, settings) {
  return { serviceName: 'live', uploadInterval: 5, destinations: [{ type: 'file', directory, keep: 10_000 }], ...settings };
}

/** Exits with an error message. */
function fail(message) {
  console.error(message);
  process.exit(1);
}

/** Runs another program of the suite: exit status and output. A hung one is killed and reported. */
function ended(words, { limitMs = 60_000, env = {} } = {}) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, words, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const result = { stdout: '', stderr: '', hung: false };
    for (const stream of ['stdout', 'stderr']) child[stream].setEncoding('utf8').on('data', (part) => { result[stream] += part; });
    const watch = setTimeout(() => {
      result.hung = true;
      child.kill('SIGKILL');
    }, limitMs);
    child.once('close', (code, signal) => {
      clearTimeout(watch);
      resolve({ code, signal, ...result });
    });
  });
}

/** Counters of `stats()` with this prefix that are not zero. */
function counters(stats, prefix) {
  return Object.fromEntries(Object.entries(stats).filter(([name, value]) => name.startsWith(prefix) && value));
}

module.exports = { folder, into, fail, ended, counters };
