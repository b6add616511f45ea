'use strict';
// Native frames between JavaScript and the leaf, and between two parts of JavaScript, in code without frame pointers.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { execFileSync } = require('node:child_process');
const pprof = require('./pprof_file.js');
const { program, runNode, temporaryDirectory } = require('./run_node.js');

const SPINNERS = { chain_half: 0.5, chain_third: 0.3, chain_fifth: 0.2 };
// Callers in the addon and the program.
const CHAIN = ['chain_burn_inner', 'chain_burn_outer', 'burn', 'called', 'chain_call_inner', 'chain_call_outer', 'call', 'calls'];

const sampleCount = (file) => pprof.read(file).reduce((sum, { values }) => sum + values.samples, 0);

function addon(t) {
  const file = path.join(temporaryDirectory(t), 'native_chain.node');
  execFileSync('cc', ['-O2', '-fomit-frame-pointer', '-shared', '-fPIC', '-o', file, program('native_chain.c')]);
  return file;
}

test('each sample in native code without frame pointers has the whole chain and the lines of JavaScript', (t) => {
  const { folder, stdout } = runNode(t, [program('native_chain.js'), addon(t), '1000', '1.5']);
  const source = fs.readFileSync(program('native_chain.js'), 'utf8').split('\n');
  const line = (comment) => source.findIndex((text) => text.endsWith(`// ${comment}`)) + 1;
  const profiles = fs.readdirSync(folder).filter((name) => /^cpu-.*\.pb\.gz$/.test(name)).sort();
  assert.ok(profiles.length >= 3, profiles.join());
  const sampled = { once: 0, twice: 0 };
  const shares = Object.fromEntries(Object.keys(SPINNERS).map((name) => [name, 0]));
  const ofProgram = ({ file }) => /native_chain\.(js|node)$/.test(file);
  let count = 0;
  // The end may add a short one.
  const longest = profiles.slice(2).sort((a, b) => sampleCount(path.join(folder, a)) - sampleCount(path.join(folder, b))).at(-1);
  for (const { stack, values } of pprof.read(path.join(folder, longest))) {
    const [leaf, ...callers] = stack.filter(ofProgram);
    if (!Object.hasOwn(SPINNERS, stack[0].name)) continue;
    const names = callers.map(({ name }) => name);
    assert.deepEqual(names.slice(0, 8), CHAIN, stack.map(({ name }) => name).join());
    assert.equal(callers[7].line, line('calls'));
    const lines = Object.keys(sampled).filter((comment) => line(comment) === callers[3].line);
    assert.equal(lines.length, 1, `line ${callers[3].line}`);
    sampled[lines[0]] += values.samples;
    shares[leaf.name] += values.samples;
    count += values.samples;
  }
  assert.ok(count > 500, `${count} samples`);
  // A timer that expired several times between two ticks of the kernel, up to 10 ms apart, samples once.
  const independent = JSON.parse(stdout)['clock.name'] === 'perf' ? count : count / 10;
  for (const [is, expected] of [[sampled.twice, 2 / 3], ...Object.entries(SPINNERS).map(([name, share]) => [shares[name], share])]) {
    const allowed = 4 * Math.sqrt(expected * (1 - expected) / independent);
    assert.ok(Math.abs(is / count - expected) < allowed, `${is / count}, really ${expected} ± ${allowed}`);
  }
});
