// A program on a runtime that spanprof does not profile: by `import` and by `require`.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import * as spanprof from 'spanprof';

const required = createRequire(import.meta.url)('spanprof');
assert.equal(required.start, spanprof.start);
assert.equal(spanprof.start({ serviceName: 'declined' }), false);
assert.equal(spanprof.tagWrapper({ endpoint: '/cart' }, (number) => number + 1, 4), 5);
assert.deepEqual(spanprof.stats(), {});
assert.equal(await spanprof.stop(), true);
console.log('complete');
