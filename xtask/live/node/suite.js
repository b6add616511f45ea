'use strict';
// What the programs of this folder share: how one starts, where its profiles go, how it fails.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawn } = require('node:child_process');

const folders = [];
process.once('exit', () => folders.forEach((made) => fs.rmSync(made, { recursive: true, force: true })));

/** A folder that is gone when the process ends. */
function folder() {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-live-'));
  folders.push(made);
  return made;
}

/** Settings of `start`: into files of a folder. */
function into(directory, settings) {
  return { serviceName: 'live', uploadInterval: 5, destinations: [{ type: 'file', directory, keep: 10_000 }], ...settings };
}

/** Ends the suite's program with a reason. */
function fail(message) {
  console.error(message);
  process.exit(1);
}

/** Another program of ours to its end: how it ended and what it said. One that hangs is killed, and shows so. */
function ended(words, { limitMs = 60_000, env = {} } = {}) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, words, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const said = { stdout: '', stderr: '', hung: false };
    for (const stream of ['stdout', 'stderr']) child[stream].setEncoding('utf8').on('data', (part) => { said[stream] += part; });
    const watch = setTimeout(() => {
      said.hung = true;
      child.kill('SIGKILL');
    }, limitMs);
    child.once('close', (code, signal) => {
      clearTimeout(watch);
      resolve({ code, signal, ...said });
    });
  });
}

/** Counters of `stats()` that begin with a word and are not zero. */
function counters(stats, prefix) {
  return Object.fromEntries(Object.entries(stats).filter(([name, value]) => name.startsWith(prefix) && value));
}

module.exports = { folder, into, fail, ended, counters };
