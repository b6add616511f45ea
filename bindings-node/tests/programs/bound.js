'use strict';
// Two functions of equal cost: one bound inside a scope and called inside another one and by a timer, one of the caller.

const spanprof = require('spanprof');
const { cpuNs } = require('../../../xtask/bench/node/work.js');

const [directory, seconds] = [process.argv[2], Number(process.argv[3])];

function burnBound(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1103 + 12345) % 65537;
  return x;
}

function burnCaller(turns) {
  let x = 1;
  for (let i = 0; i < turns; i++) x = (x * 1109 + 12347) % 65539;
  return x;
}

spanprof.start({ serviceName: 'bound', sampleRate: 500, destinations: [{ type: 'file', directory }] });
const bound = spanprof.tagWrapper({ endpoint: '/bound' }, () => spanprof.bind(burnBound));
const until = cpuNs() + seconds * 1e9;

function turn(done) {
  if (cpuNs() > until) return done();
  spanprof.tagWrapper({ endpoint: '/caller' }, () => {
    bound(100_000);
    burnCaller(100_000);
  });
  return setTimeout(() => {
    bound(100_000);
    turn(done);
  }, 0);
}

new Promise(turn).then(() => spanprof.stop()).then((delivered) => console.log(JSON.stringify({ delivered })));
