'use strict';
// Preloaded in each worker thread created while profiling: enrolls its thread, and removes the preload option, so that processes
// of the worker do not inherit it.

const { isMainThread } = require('node:worker_threads');

if (!isMainThread) {
  try {
    require('./first_copy.js');
    const workers = require('./workers.js');
    const preloadIndex = process.execArgv.indexOf(workers.PRELOAD);
    if (preloadIndex > 0) process.execArgv.splice(preloadIndex - 1, 2);
    require('./native.js').native.registerThread();
    require('./opentelemetry.js').install();
    workers.install();
    workers.enterInherited();
  } catch {
    // The worker runs without profiling.
  }
}
