'use strict';
// The name of this platform in the names of packages and directories with native modules. Called by `native.js` and `build.mjs`.

const fs = require('node:fs');

/**
 * Whether the process runs with musl: its loader is mapped, whatever other loaders the file system has. Debian's is a link to `libc.so`; the
 * library of glibc is `libc.so.6`.
 */
function hasMusl() {
  if (process.platform !== 'linux') return false;
  try {
    return /\/ld-musl-|\/libc\.so$/m.test(fs.readFileSync('/proc/self/maps', 'latin1'));
  } catch {
    return false;
  }
}

/** @returns {string} `linux-x64`, `linux-arm64-musl`, … */
module.exports = () => `${process.platform}-${process.arch}${hasMusl() ? '-musl' : ''}`;
