'use strict';
// What labels that follow promises cost a program that does nothing but await, beside plain AsyncLocalStorage and a peer. Prints
// Markdown, a table per Node.js.

const { child, given, medianInterval, shuffled, table, withReceiver } = require('./measuring.js');

const NAMES = ['none', 'AsyncLocalStorage', 'spanprof', 'datadog'];

async function main() {
  const { nodes, node, short } = given();
  const [rounds, awaits] = short ? [1, 20] : [7, 1000];
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
      console.log(`Node.js ${version}: 1000 chains of ${awaits} awaits each, all with a label, sampled at 100 Hz; ${rounds} fresh processes each.\n`);
      table(['labels by', 'CPU of the JavaScript thread per await, ns', '95 % interval'], NAMES.map((name) => {
        const [middle, low, high] = medianInterval(found.get(name));
        return [name, middle.toFixed(0), `${low.toFixed(0)} … ${high.toFixed(0)}`];
      }));
    }
  });
}

main();
