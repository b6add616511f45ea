'use strict';
// Says the profiler's few lines: warnings as process warnings, the rest on the logger that the program gave, if any. Not
// here: what is said (native core). A logger that throws loses the line, nothing else.

const { native } = require('./native.js');

/** @typedef {{info?: (line: string) => void, warn?: (line: string) => void}} Logger */

/** A window that has ended is also encoded and sent before its line is there. */
const DELIVERY_MS = 1_500;

/** @type {Logger | undefined} */
let logger;

/** @param {Logger | undefined} given */
function setLogger(given) {
  logger = given ?? undefined;
}

/**
 * @param {string} level
 * @param {string} line
 */
function say(level, line) {
  try {
    if (level !== 'warning') logger?.info?.(line);
    else if (logger !== undefined) logger.warn?.(line);
    else process.emitWarning(line, { type: 'SpanprofWarning' });
  } catch {
    // The program's logger is the program's.
  }
}

/** Says what waits. */
function handOver() {
  try {
    const lines = native.takeLogLines();
    for (let at = 0; at + 1 < lines.length; at += 2) say(lines[at], lines[at + 1]);
  } catch {
    // Nothing is said.
  }
}

/**
 * Says what waits when the first window has ended: one timer, once, that keeps no process alive.
 * @param {number} seconds
 */
function handOverAfter(seconds) {
  setTimeout(handOver, (seconds > 0 ? seconds : 10) * 1000 + DELIVERY_MS).unref();
}

module.exports = { say, handOver, handOverAfter, setLogger };
