'use strict';
// Cost of labels that follow promises, in a program that only awaits, beside plain AsyncLocalStorage and a peer. Also the
// difference to these in the same round. Prints Markdown, a table per Node.js.

const { child, given, medianInterval, shuffled, table, withReceiver } = require('./measuring.js');

const PLAIN = 'AsyncLocalStorage';
const NAMES = ['none', PLAIN, 'spanprof', 'datadog'];

async function main() {
  const { nodes, node, short } = given();
  const [rounds, awaits] = short ? [1, 20] : [15, 1000];
  await withReceiver(async (address) => {
    for (const program of Object.keys(nodes).length > 0 ? Object.values(nodes) : [node]) {
      const found = new Map(NAMES.map((name) => [name, []]));
      let version;
      for (let round = 0; round < rounds; round++) {
        for (const name of shuffled(NAMES)) {
          const run = await child(program, 'labels_run.js', name, awaits, address);
          version = run.version;
          found.get(name).push(run.perAwaitNs);
        }
      }
      console.log(`Node.js ${version}: 1000 chains of ${awaits} awaits each, all with a label, sampled at 100 Hz; ${rounds} fresh processes each, alternating.\n`);
      const inWords = (values) => {
        const [middle, low, high] = medianInterval(values);
        return [middle.toFixed(1), `${low.toFixed(1)} … ${high.toFixed(1)}`];
      };
      table(['labels by', 'CPU of the JavaScript thread per await, ns', '95 % interval', `more than ${PLAIN}`, '95 % interval'], NAMES.map((name) => {
        const all = found.get(name);
        return [name, ...inWords(all), ...(name === PLAIN ? ['', ''] : inWords(all.map((ns, round) => ns - found.get(PLAIN)[round])))];
      }));
    }
  });
}

main();
