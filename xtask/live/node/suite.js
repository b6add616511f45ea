'use strict';
// Shared by the programs of this directory: start, profile directory, failure.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

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

module.exports = { folder, into, fail };
