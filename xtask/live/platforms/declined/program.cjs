// A program on a runtime that spanprof does not profile: by `require`, with the packages for other names.

const assert = require('node:assert/strict');
const spanprof = require('spanprof');
const pyroscope = require('spanprof/pyroscope');
require('spanprof/pprof');

assert.equal(spanprof.start({ serviceName: 'declined' }), false);
assert.equal(spanprof.isRunning(), false);
pyroscope.init({ appName: 'declined' });
assert.equal(pyroscope.start(), false);
spanprof.stop().then(() => console.log('complete'));
