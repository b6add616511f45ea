'use strict';
// Continuous profiler inside the service: every sample carries its trace and span. Exports the public API only, which
// `lib/index.mjs` repeats for `import`.

const copies = require('./copies.js');
const { native } = require('./native.js');
const { SpanprofError } = require('./errors.js');
const lifecycle = require('./lifecycle.js');
const scope = require('./scope.js');
const pyroscope = require('./pyroscope.js');
const { expressMiddleware } = require('./express.js');
const { fastifyPlugin } = require('./fastify.js');

/** @typedef {pyroscope.PyroscopeOptions} PyroscopeOptions */
/** @typedef {lifecycle.Options} Options */
/** @typedef {scope.Labels} Labels */

module.exports = copies.exported('index', {
  version: native.version(),
  SpanprofError,
  start: pyroscope.start,
  stop: lifecycle.stop,
  flush: lifecycle.flush,
  update: lifecycle.update,
  stats: lifecycle.stats,
  isRunning: lifecycle.isRunning,
  tagWrapper: scope.tagWrapper,
  tag_wrapper: scope.tagWrapper,
  prepareLabels: scope.prepareLabels,
  setLabels: scope.setLabels,
  getLabels: scope.getLabels,
  bind: scope.bind,
  expressMiddleware,
  fastifyPlugin,
  fastifyMiddleware: fastifyPlugin,
  init: pyroscope.init,
  wrapWithLabels: pyroscope.wrapWithLabels,
  setWallLabels: pyroscope.setWallLabels,
  getWallLabels: pyroscope.getWallLabels,
  startWallProfiling: pyroscope.startWallProfiling,
  stopWallProfiling: pyroscope.stopWallProfiling,
  startCpuProfiling: pyroscope.startCpuProfiling,
  stopCpuProfiling: pyroscope.stopCpuProfiling,
  startHeapProfiling: pyroscope.startHeapProfiling,
  stopHeapProfiling: pyroscope.stopHeapProfiling,
  setLogger: pyroscope.setLogger,
  SourceMapper: pyroscope.SourceMapper,
});
