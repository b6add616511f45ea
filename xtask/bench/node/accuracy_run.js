'use strict';
// One run of the accuracy benchmark: runs a known mix under a profiler. Prints the true shares, and those of a peer, as JSON.
// spanprof writes its files into FOLDER. cycle-N: a part of 30 % of each N ms of CPU time.
//
//     accuracy_run.js mix|cycle-N|inline PROFILER RATE DEPTH CPU_SECONDS FOLDER

const fs = require('node:fs');
const { cpuNs, mix, cycles } = require('./work.js');
const inlined = require('./inlined.js');

const PEERS = {
  // The peer's own encoder converts its tree to samples with locations, leaf first.
  datadog(rate) {
    const { time } = require('@datadog/pprof');
    time.start({ intervalMicros: 1e6 / rate, durationMillis: 600_000 });
    return () => {
      const profile = time.stop(false);
      const text = (index) => profile.stringTable.strings[Number(index)];
      const functions = new Map(profile.function.map((one) => [Number(one.id), text(one.name)]));
      const locations = new Map(profile.location.map((one) => [Number(one.id), one.line.map((line) => functions.get(Number(line.functionId)))]));
      return profile.sample.map((sample) => [sample.locationId.flatMap((id) => locations.get(Number(id))), Number(sample.value[1])]);
    };
  },
  inspector(rate) {
    const { load } = require('./profilers.js');
    const inspector = load('inspector');
    inspector.start(rate);
    return () => {
      const { nodes, samples, timeDeltas } = inspector.stop();
      const parent = new Map(nodes.flatMap((node) => (node.children ?? []).map((child) => [child, node.id])));
      const names = new Map(nodes.map((node) => [node.id, node.callFrame.functionName]));
      return samples.map((id, at) => {
        const stack = [];
        for (let node = id; node !== undefined; node = parent.get(node)) stack.push(names.get(node));
        return [stack, timeDeltas[at] * 1000];
      });
    };
  },
};

async function main() {
  const [kind, profiler, ...words] = process.argv.slice(2);
  const [rate, depth, cpuSeconds] = words.map(Number);
  const directory = words[3];
  fs.mkdirSync(directory, { recursive: true });
  let spanprof;
  let collect;
  if (profiler === 'spanprof') {
    spanprof = require('spanprof');
    spanprof.start({ serviceName: 'accuracy', sampleRate: rate, uploadInterval: 3600, maxStackDepth: 256, destinations: [{ type: 'file', directory }] });
  } else {
    collect = PEERS[profiler](rate);
  }
  // Excludes the start, which is before the first sample.
  const before = cpuNs();
  const said = kind === 'inline' ? { caller: inlined.CALLER } : {};
  if (kind === 'inline') inlined.runInlined(cpuSeconds);
  else if (kind.startsWith('cycle-')) said.burnt = cycles(depth, Number(kind.slice('cycle-'.length)), cpuSeconds);
  else said.burnt = mix(depth, cpuSeconds);
  if (spanprof) {
    await spanprof.flush(30);
    const stats = spanprof.stats();
    said.process = cpuNs() - before - stats['cost.own_cpu_ns'];
    said.samples = stats['samples.cpu'];
    said.clock = stats['clock.name'];
    await spanprof.stop();
  } else {
    said.process = cpuNs() - before;
    said.seen = {};
    said.total = 0;
    const samples = collect();
    said.samples = samples.length;
    for (const [stack, value] of samples) {
      said.total += value;
      for (const name of new Set(stack)) said.seen[name] = (said.seen[name] ?? 0) + value;
    }
  }
  said.burnt ??= inlined.truthOfInlined();
  console.log(JSON.stringify(said));
  process.exit(0);
}

main();
