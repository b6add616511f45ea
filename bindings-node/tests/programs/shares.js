'use strict';
// Three functions burn about 50, 30 and 20 parts of the CPU time in turn; prints the CPU time of each, in nanoseconds.

const spanprof = require('spanprof');
const { cpuNs, mix } = require('../../../xtask/bench/node/work.js');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

spanprof.start({ serviceName: 'shares', destinations: [{ type: 'file', directory }] });
const before = cpuNs();
const took = mix(1, seconds);
const total = cpuNs() - before;
// CPU time of the profiler's own threads meanwhile.
const own = spanprof.stats()['cost.own_cpu_ns'];
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, took, total, own })));
