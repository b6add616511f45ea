'use strict';
// `node --require spanprof/register app.js`, `node --import spanprof/register app.mjs`: profiles a program without a change.
// Settings come from environment variables and the configuration file.

const { isMainThread } = require('node:worker_threads');

require('./first_copy.js');
const copies = require('./copies.js');
const { native } = require('./native.js');

const first = copies.other();
if (first !== undefined) {
  copies.warnOnce(first);
  if (!first.isRunning()) first.load('lifecycle').startQuietly();
} else if (!isMainThread && native.isRunning()) {
  // Worker threads inherit this preload.
  require('./worker.js');
} else {
  require('./lifecycle.js').startQuietly();
}
