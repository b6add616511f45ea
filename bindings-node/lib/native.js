'use strict';
// Finds the native half of the package once; everything else here asks for `native`. One file per platform serves every
// Node from 18 on. When it cannot be loaded, `absent` stands in: the program runs on, one warning says why.

const path = require('node:path');

/** @returns {string} the platform's folder below `prebuilds` */
function platform() {
  /** @type {any} */
  const report = process.platform === 'linux' && process.report ? process.report.getReport() : undefined;
  const musl = report !== undefined && report.header.glibcVersionRuntime === undefined;
  return `${process.platform}-${process.arch}${musl ? '-musl' : ''}`;
}

/** @returns {import('./absent.js').Native} */
function load() {
  const folder = path.join(__dirname, '..', 'prebuilds');
  try {
    // Most machines are answered without a diagnostic report, which takes milliseconds.
    const glibc = path.join(folder, `${process.platform}-${process.arch}`, 'spanprof.node');
    try {
      return require(glibc);
    } catch (error) {
      const other = path.join(folder, platform(), 'spanprof.node');
      if (other === glibc) throw error;
      return require(other);
    }
  } catch (error) {
    const [because] = String(error instanceof Error ? error.message : error).split('\n', 1);
    process.emitWarning(
      `spanprof does nothing in this process: its native module could not be loaded (${because}). ` +
        'Install the package for this platform and Node.',
      { type: 'SpanprofWarning', code: 'SPANPROF_NATIVE_MISSING' },
    );
    return require('./absent.js');
  }
}

module.exports = { native: load() };
