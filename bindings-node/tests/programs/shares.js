'use strict';
// Three functions burn about 50, 30 and 20 parts of the CPU time, taking turns; prints what each really took, in nanoseconds.

const spanprof = require('spanprof');
const { cpuNs, mix } = require('../../../core/benches/node/work.js');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

spanprof.start({ serviceName: 'shares', destinations: [{ type: 'file', directory }] });
const before = cpuNs();
const took = mix(1, seconds);
const total = cpuNs() - before;
// Burnt by the profiler's own threads while one of the three ran.
const own = spanprof.stats()['cost.own_cpu_ns'];
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, took, total, own })));
