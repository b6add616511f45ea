'use strict';
// Registers this copy of the package, if it has loaded its native module, so that copies loaded later use its functions. Required
// by the modules that programs load first: those of `exports` in package.json.

const copies = require('./copies.js');
const { native, folder } = require('./native.js');

/**
 * A module of this copy. `require` has literal arguments, so that bundlers include the modules; it runs when another copy calls,
 * since these modules require this one.
 * @param {'index' | 'lifecycle' | 'pprof' | 'pyroscope'} module
 */
function load(module) {
  if (module === 'index') return require('./index.js');
  if (module === 'pprof') return require('./pprof.js');
  return module === 'pyroscope' ? require('./pyroscope.js') : require('./lifecycle.js');
}

if (folder !== '') {
  copies.register({ folder: copies.HERE, version: native.version(), isRunning: () => native.isRunning(), load });
}

module.exports = load;
