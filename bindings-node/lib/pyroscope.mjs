// The exports of `pyroscope.js` for `import`, by name and as default.

import spanprof from './pyroscope.js';

export default spanprof;
export const {
  init,
  start,
  stop,
  startWallProfiling,
  startCpuProfiling,
  stopWallProfiling,
  stopCpuProfiling,
  startHeapProfiling,
  stopHeapProfiling,
  wrapWithLabels,
  setLabels,
  getLabels,
  setWallLabels,
  getWallLabels,
  setLogger,
  SourceMapper,
  expressMiddleware,
  fastifyMiddleware,
} = spanprof;
