'use strict';
// Writes the profiler's log lines to the program's logger; without one, warnings as process warnings, and the outcome of a run
// of the main thread on standard error. Not here: the text of the lines (native core). An exception of the logger loses only
// that line.

const fs = require('node:fs');
const { isMainThread } = require('node:worker_threads');

const { native } = require('./native.js');

/** @typedef {{info?: (line: string) => void, warn?: (line: string) => void}} Logger */

/** A window's line is queued after its encoding and delivery. */
const DELIVERY_MS = 1_500;
const STANDARD_ERROR = 2;

/** @type {Logger | undefined} */
let logger;
/** @type {NodeJS.Timeout | undefined} */
let timer;
/** Set in the `exit` event: no tick follows in which Node.js would emit a warning. */
let isExiting = false;
/** Warnings that Node.js emits on the next tick. @type {Set<Error>} */
const pendingWarnings = new Set();

/** @param {Logger | undefined} newLogger */
function setLogger(newLogger) {
  logger = newLogger ?? undefined;
}

/**
 * @param {string} level
 * @param {string} line
 */
function log(level, line) {
  try {
    if (logger !== undefined) (level === 'warning' ? logger.warn : logger.info)?.call(logger, line);
    else if (level === 'warning') warn(line);
    else if (isMainThread && level === 'outcome') fs.writeSync(STANDARD_ERROR, `${line}\n`);
  } catch {
    // An exception of the program's logger is ignored, and so is a closed standard error.
  }
}

/** @param {string} line */
function warn(line) {
  const warning = Object.assign(new Error(line), { name: 'SpanprofWarning' });
  // Node's own listener writes to standard error synchronously, and `--no-warnings` removes it.
  if (isExiting) return process.emit('warning', warning);
  process.emitWarning(warning);
  pendingWarnings.add(warning);
  process.nextTick(() => pendingWarnings.delete(warning));
}

/** Logs all queued lines in a handler of `exit`: everything is written before it returns. */
function flushAtExit() {
  isExiting = true;
  for (const warning of pendingWarnings) process.emit('warning', warning);
  pendingWarnings.clear();
  flush();
}

/** Logs all queued lines. */
function flush() {
  try {
    const lines = native.takeLogLines();
    for (let i = 0; i + 1 < lines.length; i += 2) log(lines[i], lines[i + 1]);
  } catch {
    // The lines are lost.
  }
}

/**
 * Logs queued lines once per window; the timer does not keep the process alive.
 * @param {number} seconds of a window
 */
function flushEvery(seconds) {
  stopFlushing();
  timer = setInterval(flush, (seconds > 0 ? seconds : 10) * 1000 + DELIVERY_MS).unref();
}

function stopFlushing() {
  clearInterval(timer);
}

module.exports = { log, flush, flushAtExit, flushEvery, stopFlushing, setLogger };
