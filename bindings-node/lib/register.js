'use strict';
// `node --require spanprof/register app.js`, `node --import spanprof/register app.mjs`: profiles a program that knows nothing
// of it. Settings come from variables and the configuration file.

require('./lifecycle.js').startQuietly();
