'use strict';
// Burns CPU time in a known function called by C++, with the requested walk method, or with those that a restricted self-test
// leaves; prints the profiler's statistics.

const vm = require('node:vm');
const spanprof = require('spanprof');
const { native } = require('../../lib/native.js');

const [, , directory, stackWalk, selfTestResult] = process.argv;
const { selectStackWalk } = native;
if (selfTestResult === 'v8') native.selectStackWalk = () => selectStackWalk(false);
if (selfTestResult === 'none') native.selectStackWalk = () => selfTestResult;

function burnInside(milliseconds) {
  const before = process.cpuUsage().user;
  let made = 0;
  while (process.cpuUsage().user - before < milliseconds * 1000) made += Array.from({ length: 300 }, (_, n) => n * n).length;
  return made;
}
function burnOutside(milliseconds) {
  const made = burnInside(milliseconds);
  return made;
}

const running = spanprof.start({ serviceName: 'walks', stackWalk, destinations: [{ type: 'file', directory }] });
globalThis.burnFromVm = () => burnOutside(400);
vm.runInThisContext('burnFromVm()');
spanprof.flush().then(() => {
  const stats = spanprof.stats();
  const of = (name) => stats[`runtime.node.${name}`];
  const output = { running, walk: of('stack_walk'), differing: of('facts_differing'), byOwn: of('walks_own'), byV8: of('walks_by_v8'), ended: stats['dropped.code_ended'] };
  return spanprof.stop().then((delivered) => console.log(JSON.stringify({ ...output, delivered })));
});
