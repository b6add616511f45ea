'use strict';
// Burns CPU time in a function of known name, which C++ calls, while stacks are walked by the means asked for, or by those that
// are left when the self-test finds fewer; prints what the profiler says of it.

const vm = require('node:vm');
const spanprof = require('spanprof');
const { native } = require('../../lib/native.js');

const [, , directory, stackWalk, found] = process.argv;
const { judgeWalks } = native;
if (found === 'v8') native.judgeWalks = () => judgeWalks(false);
if (found === 'none') native.judgeWalks = () => found;

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
  const said = { running, walk: of('stack_walk'), differing: of('facts_differing'), byOwn: of('walks_own'), byV8: of('walks_by_v8'), ended: stats['dropped.code_ended'] };
  return spanprof.stop().then((delivered) => console.log(JSON.stringify({ ...said, delivered })));
});
