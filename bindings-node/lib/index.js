'use strict';
// Continuous profiler inside the service: every sample carries its trace and span. Exports the public API only, which
// `lib/index.mjs` repeats for `import`.

require('./first_copy.js');
const copies = require('./copies.js');
const { native } = require('./native.js');
const { SpanprofError } = require('./errors.js');
const lifecycle = require('./lifecycle.js');
const { capture } = require('./capture.js');
const { SpanProcessor } = require('./span_processor.js');
const scope = require('./scope.js');
const pyroscope = require('./pyroscope.js');
const { expressMiddleware } = require('./express.js');
const { fastifyPlugin } = require('./fastify.js');
const { pprofMiddleware, pprofPlugin } = require('./pull.js');

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
  capture,
  SpanProcessor,
  expressMiddleware,
  fastifyPlugin,
  fastifyMiddleware: fastifyPlugin,
  pprofMiddleware,
  pprofPlugin,
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
