'use strict';
// Worker threads are profiled with no code of the user's: those made after `start` load `worker.js` first, and carry the labels
// of the scope that made them where `inheritThreads` asks for it. Not here: their samples (native core).

const fs = require('node:fs');
const path = require('node:path');
const workerThreads = require('node:worker_threads');
const { syncBuiltinESMExports } = require('node:module');
const { native, folder } = require('./native.js');
const scope = require('./scope.js');

const PRELOAD = path.join(folder, 'lib', 'worker.js');
const WRAPPED = Symbol.for('spanprof.worker');
/** Under which the id of the context that made a worker is handed to it, while it is being made. */
const CREATOR = 'spanprof.creator';

/**
 * Options of the process that a worker inherits, but refuses when it is told them: refused ones found so far.
 * @type {Set<string>}
 */
const refused = new Set();

/**
 * @param {string[]} words
 * @returns {string[]}
 */
function accepted(words) {
  return words.filter((word) => !refused.has(word));
}

/**
 * Remembers what an error named; whether it named anything new.
 * @param {any} error
 * @param {string[]} words
 */
function learn(error, words) {
  if (error?.code !== 'ERR_WORKER_INVALID_EXEC_ARGV') return false;
  const known = refused.size;
  const message = String(error.message);
  for (const word of words) {
    if (word.startsWith('-') && message.includes(word.split('=', 1)[0])) refused.add(word);
  }
  return refused.size > known;
}

/** The id of the context that a worker made here is to begin with; 0 for none. */
function inherited() {
  const id = scope.current();
  return id !== 0 && native.setting('inherit_threads') === 'true' ? id : 0;
}

/** The script of this worker, and what it starts, goes on under the context that made it. */
function beginInherited() {
  const id = workerThreads.getEnvironmentData(CREATOR);
  // Workers made in this one have creators of their own.
  workerThreads.setEnvironmentData(CREATOR, undefined);
  if (typeof id === 'number' && id !== 0) scope.enter(id);
}

/** Wraps the constructor, once. */
function install() {
  const { Worker } = workerThreads;
  if (WRAPPED in Worker) return;

  class ProfiledWorker extends Worker {
    /**
     * @param {string | URL} filename
     * @param {import('node:worker_threads').WorkerOptions} [options]
     */
    constructor(filename, options) {
      // A worker that is told its own options is left with them; one that could not load us would not start.
      if (options?.execArgv !== undefined || !fs.existsSync(PRELOAD)) {
        super(filename, options);
        return;
      }
      const preloading = () => ({ ...options, execArgv: [...accepted(process.execArgv), '--require', PRELOAD] });
      const id = inherited();
      try {
        // A copy goes along with each worker made.
        if (id !== 0) workerThreads.setEnvironmentData(CREATOR, id);
        super(filename, preloading());
      } catch (error) {
        // Whatever the reason, the worker must start as it would without us, or fail as it would.
        if (learn(error, process.execArgv)) super(filename, preloading());
        else super(filename, options);
      } finally {
        if (id !== 0) workerThreads.setEnvironmentData(CREATOR, undefined);
      }
    }
  }
  Object.defineProperty(ProfiledWorker, 'name', { value: 'Worker' });
  Object.defineProperty(ProfiledWorker, WRAPPED, { value: true });
  workerThreads.Worker = ProfiledWorker;
  syncBuiltinESMExports();
}

module.exports = { install, beginInherited, PRELOAD };
