'use strict';
// Loaded first in each worker thread made while profiling: makes its thread known, and leaves no trace in
// the options that the worker hands to processes of its own.

const { isMainThread } = require('node:worker_threads');

if (!isMainThread) {
  try {
    const workers = require('./workers.js');
    const at = process.execArgv.indexOf(workers.PRELOAD);
    if (at > 0) process.execArgv.splice(at - 1, 2);
    require('./native.js').native.registerThread();
    require('./opentelemetry.js').install();
    workers.install();
    workers.beginInherited();
  } catch {
    // The worker runs as it would without us.
  }
}
