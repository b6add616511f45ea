'use strict';
// `node --require spanprof/register app.js`, `node --import spanprof/register app.mjs`: profiles a program without a change.
// Settings come from environment variables and the configuration file.

require('./first_copy.js');
const copies = require('./copies.js');
const lifecycle = require('./lifecycle.js');

const first = copies.other();
if (first === undefined) lifecycle.startQuietly();
else {
  copies.warnOnce(first);
  if (!first.isRunning()) first.load('lifecycle').startQuietly();
}
