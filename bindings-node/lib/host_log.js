'use strict';
// Logs the profiler's few lines: warnings as process warnings, the rest on the logger that the program gave, if any. Not
// here: what they report (native core). A logger that throws loses the line, nothing else.

const { native } = require('./native.js');

/** @typedef {{info?: (line: string) => void, warn?: (line: string) => void}} Logger */

/** A window that has ended is also encoded and sent before its line is there. */
const DELIVERY_MS = 1_500;

/** @type {Logger | undefined} */
let logger;
/** @type {NodeJS.Timeout | undefined} */
let timer;
/** Whether the process ends: no tick follows in which Node would emit a warning. */
let ends = false;
/** Warnings that Node emits with the next tick. @type {Set<Error>} */
const unemitted = new Set();

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
    else warn(line);
  } catch {
    // The program's logger is the program's.
  }
}

/** @param {string} line */
function warn(line) {
  const warning = Object.assign(new Error(line), { name: 'SpanprofWarning' });
  // Node's own listener writes to standard error before it returns, and `--no-warnings` removes it.
  if (ends) return process.emit('warning', warning);
  process.emitWarning(warning);
  unemitted.add(warning);
  process.nextTick(() => unemitted.delete(warning));
}

/** Logs what waits, in a handler of `exit`: everything is written before it returns. */
function handOverAtExit() {
  ends = true;
  for (const warning of unemitted) process.emit('warning', warning);
  unemitted.clear();
  handOver();
}

/** Logs what waits. */
function handOver() {
  try {
    const lines = native.takeLogLines();
    for (let at = 0; at + 1 < lines.length; at += 2) say(lines[at], lines[at + 1]);
  } catch {
    // Nothing is said.
  }
}

/**
 * Logs what waits after each window of so many seconds; the timer keeps no process alive.
 * @param {number} seconds
 */
function handOverEvery(seconds) {
  handOverNoMore();
  timer = setInterval(handOver, (seconds > 0 ? seconds : 10) * 1000 + DELIVERY_MS).unref();
}

function handOverNoMore() {
  clearInterval(timer);
}

module.exports = { say, handOver, handOverAtExit, handOverEvery, handOverNoMore, setLogger };
