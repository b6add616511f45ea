'use strict';
// Writes the profiler's log lines to the program's logger; without one, warnings as process warnings, and the outcome of a run
// of the main thread on standard error. Not here: the text of the lines (native core). An exception of the logger loses only
// that line.

const { isMainThread } = require('node:worker_threads');

const { native } = require('./native.js');
const { emitWarning, emitPending } = require('./primordials.js');

/** @typedef {{info?: (line: string) => void, warn?: (line: string) => void}} Logger */

/** @type {Logger | undefined} */
let logger;
let isNotified = false;

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
    else if (isMainThread && level === 'outcome') native.writeToStandardError(line);
  } catch {
    // An exception of the program's logger is ignored.
  }
}

/** @param {string} line */
function warn(line) {
  // Node's own listener writes to descriptor 2, whatever it is.
  if (native.hasStandardError()) emitWarning(line);
}

/** Logs all queued lines in a handler of `exit`: everything is written before it returns. */
function flushAtExit() {
  emitPending();
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

/** From now on lines are logged as they are queued, which does not keep the process alive. */
function flushAsQueued() {
  if (!isNotified) native.onLogLines(flush);
  isNotified = true;
}

module.exports = { log, flush, flushAtExit, flushAsQueued, setLogger };
