'use strict';
// Creates worker threads that are profiled without user code: they preload `worker.js`, and inherit the labels of the creating scope
// if `inheritThreads` is set. Not here: their samples (native core).

const fs = require('node:fs');
const path = require('node:path');
const workerThreads = require('node:worker_threads');
const { IS_BUNDLED } = require('./copies.js');
const { native, folder } = require('./native.js');

// Loaded by its path: written out for tools that trace the files of a program.
const PRELOAD = IS_BUNDLED ? path.join(fs.realpathSync(folder), 'lib', 'worker.js') : path.join(__dirname, 'worker.js');
/** Key of the environment data that passes the creator's context id to `worker.js`. */
const CREATOR = 'spanprof.creator';

/**
 * Options that a worker accepts from the process, but refuses in its own `execArgv`; those found so far.
 * @type {Set<string>}
 */
const refused = new Set();

/**
 * @param {string[]} args
 * @returns {string[]}
 */
function withoutRefused(args) {
  return args.filter((arg) => !refused.has(arg));
}

/**
 * Records the options named in an error; whether there was a new one.
 * @param {any} error
 * @param {string[]} args
 */
function recordRefused(error, args) {
  if (error?.code !== 'ERR_WORKER_INVALID_EXEC_ARGV') return false;
  const sizeBefore = refused.size;
  const message = String(error.message);
  for (const arg of args) {
    if (arg.startsWith('-') && message.includes(arg.split('=', 1)[0])) refused.add(arg);
  }
  return refused.size > sizeBefore;
}

/** The context id that a worker created here starts with; 0 for none. */
function inherited() {
  const id = require('./scope.js').current();
  return id !== 0 && native.setting('inherit_threads') === 'true' ? id : 0;
}

/**
 * Creates a worker that preloads `worker.js`. One with its own `execArgv` is not changed, and one that cannot load the preload would
 * not start.
 * @param {Function} Worker
 * @param {[string | URL, import('node:worker_threads').WorkerOptions?]} args
 * @param {Function} newTarget
 */
function construct(Worker, args, newTarget) {
  const [filename, options] = args;
  if (options?.execArgv !== undefined || !fs.existsSync(PRELOAD)) return Reflect.construct(Worker, args, newTarget);
  const preloading = () =>
    Reflect.construct(Worker, [filename, { ...options, execArgv: [...withoutRefused(process.execArgv), '--require', PRELOAD] }], newTarget);
  const id = inherited();
  try {
    // Copied into each new worker.
    if (id !== 0) workerThreads.setEnvironmentData(CREATOR, id);
    return preloading();
  } catch (error) {
    // The worker must start, or fail, as it would without the profiler.
    return recordRefused(error, process.execArgv) ? preloading() : Reflect.construct(Worker, args, newTarget);
  } finally {
    if (id !== 0) workerThreads.setEnvironmentData(CREATOR, undefined);
  }
}

module.exports = { construct };
