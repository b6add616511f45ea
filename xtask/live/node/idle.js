'use strict';
// A process that waits for requests that do not come: what it does with the profiler, it did without.
//
//     idle.js SECONDS

const fs = require('node:fs');
const { ended, fail, folder, into } = require('./suite.js');

const [seconds, profiled, directory] = process.argv.slice(2);

/** Times that any thread of this process was put to sleep or taken off the processor, and the CPU time of all. */
function looks() {
  const said = { switches: 0, cpuUs: 0 };
  for (const thread of fs.readdirSync('/proc/self/task')) {
    try {
      const status = fs.readFileSync(`/proc/self/task/${thread}/status`, 'latin1');
      said.switches += Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)[1]);
    } catch {
      // It ended meanwhile.
    }
  }
  const { user, system } = process.cpuUsage();
  said.cpuUs = user + system;
  return said;
}

async function program() {
  if (profiled === 'yes') require('spanprof').start(into(directory, { sampleRate: 1000, uploadInterval: 1 }));
  const server = require('node:http').createServer(() => {}).listen(0, '127.0.0.1');
  // The windows with what starting did are sent, and what runs late has run.
  await new Promise((resolve) => setTimeout(resolve, 6000));
  const before = looks();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const after = looks();
  console.log(JSON.stringify({ switches: after.switches - before.switches, cpuUs: after.cpuUs - before.cpuUs }));
  server.close();
  if (profiled === 'yes') await require('spanprof').stop();
}

async function main() {
  const found = {};
  for (const name of ['no', 'yes']) {
    const { code, stdout, stderr } = await ended([__filename, seconds, name, folder()], { limitMs: (Number(seconds) + 60) * 1000 });
    if (code !== 0) fail(`ended with ${code}: ${stderr}`);
    found[name] = JSON.parse(stdout);
  }
  console.log(`${process.version}: in ${seconds} s without ${JSON.stringify(found.no)}, with ${JSON.stringify(found.yes)}`);
  // Looking for new threads is rare while none comes; a peer wakes a hundred times a second.
  const more = found.yes.switches - found.no.switches;
  if (more > Number(seconds)) fail(`${more} more wake-ups than without`);
}

(profiled === undefined ? main() : program()).catch((error) => fail(error.stack));
