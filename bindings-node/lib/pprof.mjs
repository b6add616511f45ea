// The exports of `pprof.js` for `import`, by name and as default.

import spanprof from './pprof.js';

export default spanprof;
export const { time, heap, encode, encodeSync, SourceMapper, setLogger } = spanprof;
