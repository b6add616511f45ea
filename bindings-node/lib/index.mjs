// The exports of `index.js` for `import`, by name and as default.

import spanprof from './index.js';

export default spanprof;
export const {
  version,
  SpanprofError,
  start,
  stop,
  flush,
  update,
  stats,
  isRunning,
  tagWrapper,
  tag_wrapper,
  prepareLabels,
  setLabels,
  getLabels,
  bind,
  expressMiddleware,
  fastifyPlugin,
  fastifyMiddleware,
  init,
  wrapWithLabels,
  setWallLabels,
  getWallLabels,
  startWallProfiling,
  stopWallProfiling,
  startCpuProfiling,
  stopCpuProfiling,
  startHeapProfiling,
  stopHeapProfiling,
  setLogger,
  SourceMapper,
} = spanprof;
