'use strict';
// Preloaded in each worker thread created while profiling: enrolls its thread, and removes the preload option, so that processes
// of the worker do not inherit it. The thread is enrolled last, since V8 then reports each function that it compiles.

const { isMainThread, getEnvironmentData, setEnvironmentData } = require('node:worker_threads');

/** Key of the environment data by which `workers.js` passes the creator's context id. */
const CREATOR = 'spanprof.creator';

function enroll() {
  const copies = require('./copies.js');
  const { native, folder } = require('./native.js');
  if (folder === '') return;
  copies.register({ folder: copies.HERE, version: native.version(), isRunning: native.isRunning, load: (module) => require('./first_copy.js')(module) });
  const thread = require('./thread.js');
  thread.linkOpenTelemetry();
  thread.followRequests();
  thread.replaceWorker(Object.keys(require.cache).every((name) => name.startsWith(__dirname)));
  native.registerThread();
  const id = getEnvironmentData(CREATOR);
  // Workers created by this one have their own creators.
  setEnvironmentData(CREATOR, undefined);
  if (typeof id === 'number' && id !== 0) require('./scope.js').enter(id);
}

if (!isMainThread) {
  try {
    enroll();
  } catch {
    // The worker runs without profiling.
  }
  const preloadIndex = process.execArgv.indexOf(__filename);
  if (preloadIndex > 0) process.execArgv.splice(preloadIndex - 1, 2);
}
