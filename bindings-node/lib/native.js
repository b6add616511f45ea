'use strict';
// Loads the native module once, for all other modules of the package. One file per platform serves every Node.js from 18 on: that of
// the platform's package (`spanprof-linux-x64`, an optional dependency), or below `prebuilds` after a build from source.
// When it cannot be loaded, `noop.js` replaces it: the program continues, and one warning gives the reason.

const fs = require('node:fs');
const { createRequire } = require('node:module');
const path = require('node:path');
const copies = require('./copies.js');
const platform = require('./platform.js');

const { HERE, IS_BUNDLED } = copies;
/** Whether a worker thread preloads the package: then the main thread has checked the runtime and the file. */
const IS_CHECKED = process.execArgv.includes(path.join(HERE, 'worker.js'));

const MODULE = 'spanprof.node';
/** Written out, so that tools that trace the files of a program (Next.js `output: 'standalone'`) copy the directory. */
const PREBUILDS = IS_BUNDLED ? HERE : path.join(__dirname, '../prebuilds');

/**
 * The modules of the packages beside this one, by platform; written out for the same tools. Not for bundles, which may have no
 * `__dirname`.
 * @returns {Record<string, string>}
 */
const modulesBeside = () => ({
  'linux-x64': path.join(__dirname, '../../spanprof-linux-x64/spanprof.node'),
  'linux-arm64': path.join(__dirname, '../../spanprof-linux-arm64/spanprof.node'),
  'linux-x64-musl': path.join(__dirname, '../../spanprof-linux-x64-musl/spanprof.node'),
  'linux-arm64-musl': path.join(__dirname, '../../spanprof-linux-arm64-musl/spanprof.node'),
});

/** @returns {string[]} directories of the package: its own, and for a bundle those beside it or the program. */
function packages() {
  if (!IS_BUNDLED) return [path.dirname(PREBUILDS)];
  /** @type {{version: string}} */
  // @ts-expect-error JSON outside the compiled directory
  const { version } = require('../package.json');
  const from = [HERE || undefined, process.argv[1] === undefined ? undefined : path.dirname(process.argv[1])];
  const candidates = from.flatMap((start) => {
    const above = [];
    for (let parent = start; parent !== undefined; parent = path.dirname(parent) === parent ? undefined : path.dirname(parent)) {
      above.push(path.join(parent, 'node_modules', 'spanprof'));
    }
    return above;
  });
  return [...new Set(candidates)].filter((folder) => {
    try {
      // Both halves must have the same version.
      return JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8')).version === version;
    } catch {
      return false;
    }
  });
}

/**
 * @param {string} file
 * @returns {import('./noop.js').Native}
 */
function loadFile(file) {
  // A truncated file is mapped without an error, and the first read past its end would end the process.
  if (!IS_CHECKED) require('./elf.js').checkComplete(file);
  const loaded = { exports: {} };
  // Not `require`, which bundlers replace.
  process.dlopen(loaded, file);
  return /** @type {any} */ (loaded.exports);
}

/** @returns {{native: import('./noop.js').Native, folder: string}} */
function load() {
  const [folder] = packages();
  if (folder === undefined) throw new Error('the program is a bundle, and the package is not installed beside it');
  return { native: loadFile(moduleFile(folder)), folder };
}

/**
 * The file of the native module for this platform.
 * @param {string} folder of the package
 */
function moduleFile(folder) {
  const name = platform();
  const built = path.join(folder, 'prebuilds', name, MODULE);
  const beside = IS_BUNDLED ? path.join(folder, '..', `spanprof-${name}`, MODULE) : modulesBeside()[name];
  const found = [built, beside].find((file) => file !== undefined && fs.existsSync(file));
  if (found !== undefined) return found;
  // Nested below the package, or where an installer puts it that has no `node_modules`.
  const { resolve } = createRequire(path.join(folder, 'package.json'));
  try {
    return resolve(`spanprof-${name}/${MODULE}`);
  } catch {
    throw new Error(`the package spanprof-${name} is not installed`);
  }
}

/**
 * The action that the warning recommends.
 * @param {any} error
 */
function recommendation(error) {
  const [folder] = packages();
  if (error?.code === 'ERR_DLOPEN_DISABLED') return 'Node.js runs with --permission: add --allow-addons.';
  if (error?.code === 'ERR_ACCESS_DENIED') return 'Node.js runs with --permission: add --allow-fs-read for the package and --allow-addons.';
  if (IS_BUNDLED) {
    return "Mark spanprof external (esbuild: --external:spanprof, webpack: externals: { spanprof: 'commonjs spanprof' }) and " +
      'install it where the bundle runs.';
  }
  if (folder !== undefined && fs.existsSync(path.join(folder, 'build.mjs'))) return `Build it from source: npm run build, in ${folder}.`;
  return 'Install the package for this platform and Node.js again.';
}

/**
 * The native module and the package's directory; `noop.js` and '' if it was not loaded.
 * @returns {{native: import('./noop.js').Native, folder: string}}
 */
function loadOrWarn() {
  if (copies.other() !== undefined) return { native: require('./noop.js'), folder: '' };
  const otherRuntime = IS_CHECKED ? undefined : require('./host_runtime.js').otherThanNode();
  if (otherRuntime !== undefined) {
    return declined(`it profiles Node.js, and this is ${otherRuntime}. Run the service with Node.js to profile it.`, 'SPANPROF_OTHER_RUNTIME');
  }
  try {
    return load();
  } catch (error) {
    const [reason] = String(error instanceof Error ? error.message : error).split('\n', 1);
    return declined(`its native module could not be loaded (${reason}). ${recommendation(error)}`, 'SPANPROF_NATIVE_MISSING');
  }
}

/**
 * @param {string} reason with its remedy
 * @param {string} code of the warning
 */
function declined(reason, code) {
  require('./primordials.js').emitWarning(`spanprof does nothing in this process: ${reason}`, code);
  return { native: require('./noop.js'), folder: '' };
}

const { native, folder } = loadOrWarn();

module.exports = { native, folder };
