'use strict';
// What the operator loads by NODE_OPTIONS: OpenTelemetry's own start, then the profiler, which links samples to its spans.

require('./opentelemetry.js');
require('spanprof/register');
