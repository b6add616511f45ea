'use strict';
// Node's own tools at the same time: --cpu-prof, --heap-prof, an inspector session, an open inspector port. Each must work as
// without the profiler, and the profiler as without the tool.
//
//     beside.js SECONDS

const fs = require('node:fs');
const path = require('node:path');
const { ended, fail, folder, into } = require('./suite.js');

const [seconds, directory] = process.argv.slice(2);

/** Retained objects, which the heap profile at exit must contain. */
const kept = [];
module.exports = { kept };

/** In CPU time, which on a loaded machine is less than elapsed time. */
function burnBeside(milliseconds) {
  const before = process.cpuUsage();
  for (let at = 0; process.cpuUsage(before).user < milliseconds * 1000; at++) kept[at % 20_000] = Array.from({ length: 200 }, (_, number) => ({ number }));
  return kept.length;
}

/** The profiled program, optionally with its own inspector session. */
async function program() {
  const spanprof = require('spanprof');
  if (!spanprof.start(into(directory, { sampleRate: 250, wall: true }))) fail('it did not start');
  let session;
  if (process.env.WITH_SESSION) {
    const { Session } = require('node:inspector');
    session = new Session();
    session.connect();
    for (const method of ['Profiler.enable', 'Profiler.start', 'HeapProfiler.enable', 'HeapProfiler.startSampling', 'Debugger.enable']) {
      session.post(method, (error) => { if (error) throw new Error(`${method}: ${error.message}`); });
    }
  }
  for (let turn = 0; turn < 10; turn++) {
    burnBeside(seconds * 100);
    await new Promise(setImmediate);
  }
  if (session) {
    session.post('Profiler.stop', (error, { profile }) => fs.writeFileSync(path.join(directory, 'session.cpuprofile'), JSON.stringify(profile)));
    session.post('HeapProfiler.stopSampling', (error, { profile }) => fs.writeFileSync(path.join(directory, 'session.heapprofile'), JSON.stringify(profile)));
    session.disconnect();
  }
  await spanprof.stop();
}

async function main() {
  const { readAll } = require(path.join(__dirname, '../../../bindings-node/tests/pprof_file.js'));
  const cases = {
    tools: [['--cpu-prof', '--heap-prof'], {}, ['.cpuprofile', '.heapprofile']],
    session: [[], { WITH_SESSION: '1' }, ['.cpuprofile', '.heapprofile']],
    port: [['--inspect=127.0.0.1:0'], {}, []],
    everything: [['--cpu-prof', '--heap-prof', '--inspect=127.0.0.1:0'], { WITH_SESSION: '1' }, ['.cpuprofile', '.heapprofile']],
  };
  for (const [name, [flags, env, endings]] of Object.entries(cases)) {
    const own = folder();
    const places = flags.includes('--cpu-prof') ? [`--cpu-prof-dir=${own}`, `--heap-prof-dir=${own}`] : [];
    const { code, signal, hung, stderr } = await ended([...flags, ...places, __filename, seconds, own], { env });
    if (hung || code !== 0) fail(`${name}: ended with ${hung ? 'nothing, it hung' : signal ?? code}\n${stderr}`);
    const files = fs.readdirSync(own);
    for (const ending of endings) {
      const found = files.filter((file) => file.endsWith(ending));
      if (found.length === 0) fail(`${name}: no ${ending} was written`);
      for (const file of found) {
        const text = fs.readFileSync(path.join(own, file), 'utf8');
        JSON.parse(text);
        if (!text.includes('burnBeside')) fail(`${name}: ${file} does not know what ran`);
      }
    }
    const seen = readAll(own, 'cpu').filter(({ stack }) => stack.some((frame) => frame.name === 'burnBeside'));
    const ms = seen.reduce((sum, { values }) => sum + values.cpu, 0) / 1e6;
    console.log(`${process.version} ${name}: ours has ${ms.toFixed(0)} ms of burnBeside`);
    if (ms === 0) fail(`${name}: our own profile does not know what ran`);
  }
}

(directory === undefined ? main() : program()).catch((error) => fail(error.stack));
