// Uses CPU time with and without a label, under @pyroscope/nodejs: node agent.js ADDRESS SERVICE
const pyroscope = require('@pyroscope/nodejs');

function burn(milliseconds) {
  const end = performance.now() + milliseconds;
  while (performance.now() < end) JSON.parse('[1, 2, 3]');
}
function burn_with_label() {
  burn(2000);
}
function burn_alone() {
  burn(1000);
}

const [serverAddress, appName] = process.argv.slice(2);
pyroscope.init({ serverAddress, appName, tags: { region: 'eu' }, wall: { collectCpuTime: true } });
pyroscope.start();
// Labels apply from the next turn of the event loop on.
setImmediate(() => {
  pyroscope.wrapWithLabels({ endpoint: '/cart' }, burn_with_label);
  setImmediate(async () => {
    burn_alone();
    await pyroscope.stop();
  });
});
