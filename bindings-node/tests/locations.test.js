'use strict';
// Source locations: executing lines in each tier, inlined functions above their callers, source maps.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const pprof = require('./pprof_file.js');
const { runNode, temporaryDirectory } = require('./run_node.js');

const programs = path.join(__dirname, 'programs');
const major = Number(process.versions.node.split('.')[0]);

/** Runs a program under the profiler; returns its output and its samples. */
function profiled(t, program, options, ...rest) {
  const { stdout, folder } = runNode(t, [...options, program], rest);
  return { output: JSON.parse(stdout), samples: pprof.readAll(folder, 'cpu') };
}

/** Line of a comment in a program. */
function lineOf(file, comment) {
  const lines = fs.readFileSync(path.join(programs, file), 'utf8').split('\n');
  const line = lines.findIndex((text) => text.endsWith(`// ${comment}`)) + 1;
  assert.ok(line > 0, `${file} has no comment "${comment}"`);
  return line;
}

/** Four standard errors of a share among `count` samples. */
const allowance = (share, count) => 4 * Math.sqrt(share * (1 - share) / count);

const noMaglev = major >= 22 ? ['--no-maglev'] : [];
const tiers = {
  interpreted: ['--no-opt', '--no-sparkplug', ...noMaglev],
  optimized: [],
};
for (const [tier, options] of Object.entries(tiers)) {
  test(`${tier} code has its executing line`, (t) => {
    const { output, samples } = profiled(t, path.join(programs, 'locations.js'), options, '0.8');
    const lines = { [lineOf('locations.js', 'three')]: 'three', [lineOf('locations.js', 'one')]: 'one' };
    const sampled = { three: 0, one: 0 };
    let count = 0;
    for (const { stack, values } of samples) {
      const index = stack.findIndex(({ name }) => name === 'burn');
      if (index < 0 || stack[index + 1]?.name !== 'work') continue;
      const { line, file } = stack[index + 1];
      assert.ok(line in lines, `${file}:${line} calls nothing that burns`);
      assert.ok(stack[index].line >= 10 && stack[index].line <= 14, `burn does not reach to line ${stack[index].line}`);
      sampled[lines[line]] += values.cpu;
      count += values.samples;
    }
    const total = sampled.three + sampled.one;
    const expected = output.turned.three / (output.turned.three + output.turned.one);
    assert.ok(count > 100, `${count} samples`);
    assert.ok(Math.abs(sampled.three / total - expected) < allowance(expected, count), `${sampled.three / total}, really ${expected}`);
  });
}

test('inlined functions are frames above their callers, across files too', (t) => {
  const { samples } = profiled(t, path.join(programs, 'inlined.js'), [], '1.2');
  const truth = { half: 0.5, third: 0.3, fifth: 0.2 };
  const sampled = { half: 0, third: 0, fifth: 0 };
  const wrong = new Map();
  const check = (isCorrect, stack) => {
    if (isCorrect) return;
    const text = stack.map(({ name, file, line }) => `${name} ${path.basename(file)}:${line}`).join(' < ');
    wrong.set(text, (wrong.get(text) ?? 0) + 1);
  };
  let [onCaller, onHead, count] = [0, 0, 0];
  for (const { stack, values } of samples) {
    const hot = stack.findIndex(({ name }) => name === 'hot');
    if (hot < 0) continue;
    count += values.samples;
    const small = stack[hot - 1]?.name;
    if (!(small in truth)) {
      onCaller += values.cpu;
      continue;
    }
    sampled[small] += values.cpu;
    const about = stack.slice(0, hot + 1);
    const { file, line } = stack[hot];
    // Maglev peels the first turn of a loop and has one position, the loop's head, for all later turns.
    const isHead = major >= 22 && line === lineOf('inlined.js', 'turns');
    if (isHead) onHead += values.samples;
    check(path.basename(file) === 'inlined.js' && (isHead || line === lineOf('inlined.js', `calls ${small}`)), about);
    check(path.basename(stack[hot - 1].file) === 'inlined.js', about);
    const inner = stack[hot - 2];
    if (inner?.name !== 'step') continue;
    check(stack[hot - 1].line === lineOf('inlined.js', `in ${small}`), about);
    const lines = ['works in step', 'enters step'].map((comment) => lineOf('inlined_step.js', comment));
    check(path.basename(inner.file) === 'inlined_step.js' && lines.includes(inner.line), about);
  }
  assert.deepEqual([...wrong], []);
  assert.ok(onHead < 0.05 * count, `${onHead} of ${count} before the last compiler`);
  const total = sampled.half + sampled.third + sampled.fifth;
  assert.ok(count > 300, `${count} samples`);
  // The caller's own loop is 1 % of the work.
  assert.ok(onCaller < 0.05 * (total + onCaller), `${onCaller / (total + onCaller)} on the caller`);
  for (const [name, expected] of Object.entries(truth)) {
    const is = sampled[name] / total;
    assert.ok(Math.abs(is - expected) < 0.03 + allowance(expected, count), `${name}: ${is.toFixed(3)}, really ${expected}`);
  }
});

test('a loop compiled by on-stack replacement before the start has its name, its lines and its inlined functions', (t) => {
  const { output, samples } = profiled(t, path.join(programs, 'on_stack_replacement.js'), [], '0.4');
  const counts = { runsAcrossStart: 0, entered: 0, inlined: 0, elsewhere: 0 };
  for (const { stack, values } of samples) {
    const index = stack.findIndex(({ name }) => name === 'runsAcrossStart' || name === 'entered');
    const step = stack[index - 1]?.name === 'step' && path.basename(stack[index - 1].file) === 'inlined_step.js';
    if (index > (step ? 1 : 0)) continue;
    if (index < 0) {
      counts.elsewhere += values.samples;
      continue;
    }
    const { name, line, file } = stack[index];
    counts[name] += values.samples;
    if (step) counts.inlined += values.samples;
    assert.equal(path.basename(file), 'on_stack_replacement.js');
    assert.ok(line >= lineOf('on_stack_replacement.js', name === 'runsAcrossStart' ? 'runs across the start' : 'entered') && line <= lineOf('on_stack_replacement.js', `step of ${name}`) + 1, `${name}:${line}`);
  }
  assert.equal(output.ended, 0);
  assert.ok(counts.runsAcrossStart > 50 && counts.entered > 50, JSON.stringify(counts));
  assert.ok(counts.inlined > 0.5 * (counts.runsAcrossStart + counts.entered), JSON.stringify(counts));
});

test('a labeled sample has its executing line and column', (t) => {
  const program = path.join(programs, 'labeled_location.js');
  const { samples } = profiled(t, program, [], '0.6');
  const text = fs.readFileSync(program, 'utf8').split('\n');
  let [count, atWork] = [0, 0];
  for (const { stack, values, labels } of samples) {
    const [leaf] = stack;
    if (leaf.name !== 'burn') continue;
    assert.equal(labels.endpoint, '/cart');
    count += values.samples;
    // An operator of the loop, or the loop itself.
    const rest = text[leaf.line - 1].slice(leaf.column - 1);
    const isLoop = leaf.column > 0 && (text[leaf.line - 1].endsWith('// burns') || text[leaf.line - 1].includes('for ('));
    if (isLoop && /^(\*|\+|%|<|for)/.test(rest)) atWork += values.samples;
  }
  assert.ok(count > 50, `${count} samples`);
  assert.ok(atWork > 0.95 * count, `${atWork} of ${count} at an operator`);
});

test('code that was collected is dropped, and code in use is named', (t) => {
  // V8 of Node.js 26 caches compiled code by its source text, unless the flag forbids it.
  const { output, samples } = profiled(t, path.join(programs, 'churn.js'), ['--expose-gc', '--no-compilation-cache'], '10000');
  const end = output.held.at(-1);
  assert.equal(end.code_events_lost, 0);
  // Each function is two code objects. The number of dropped ones depends on the collector and on the drain: code whose memory
  // was reused has ended before. Scripts and names are dropped some drains later.
  assert.ok(end.codes_forgotten > 0, JSON.stringify(output.held));
  assert.ok(end.codes < 15_000, JSON.stringify(output.held));
  const matches = samples.filter(({ stack }) => stack.some(({ name }) => name === output.last));
  assert.ok(matches.length > 0 && matches.every(({ stack }) => stack[0].name !== '[code_ended]'), `${matches.length} samples`);
});

const typescript = `
interface Order { turns: number }

type Burner = (order: Order) => number;

export const burnTyped: Burner = (order: Order): number => {
  let x: number = 1;
  for (let i: number = 0; i < order.turns; i++) {
    x = (x * 1103 + 12345) % 65537; // burns
  }
  return x;
};

export enum Kind { Tea, Milk }
`;
const driver = (module) => `
const spanprof = require(${JSON.stringify(path.join(__dirname, '..'))});
spanprof.start({ serviceName: 'typed', destinations: [{ type: 'file', directory: process.argv[2] }] });
const { burnTyped } = require(${JSON.stringify(module)});
const before = process.cpuUsage().user;
while (process.cpuUsage().user - before < 800_000) burnTyped({ turns: 100_000 });
spanprof.stop().then((delivered) => console.log(JSON.stringify({ delivered, stats: spanprof.stats() })));
`;

for (const kind of ['in a file', 'inline']) {
  test(`a TypeScript frame has its original line, by a source map ${kind}`, (t) => {
    const folder = temporaryDirectory(t);
    for (const name of ['src', 'dist']) fs.mkdirSync(path.join(folder, name));
    const source = path.join(folder, 'src', 'burner.ts');
    fs.writeFileSync(source, typescript);
    const { ModuleKind, ScriptTarget, transpileModule } = require('typescript');
    const maps = kind === 'inline' ? { inlineSourceMap: true } : { sourceMap: true };
    // The compiler names a source by its file name, relative to this.
    const sourceRoot = '../src';
    const compilerOptions = { module: ModuleKind.CommonJS, target: ScriptTarget.ES2020, sourceRoot, ...maps };
    const made = transpileModule(typescript, { compilerOptions, fileName: source });
    const compiled = path.join(folder, 'dist', 'burner.js');
    fs.writeFileSync(compiled, made.outputText);
    if (made.sourceMapText !== undefined) fs.writeFileSync(`${compiled}.map`, made.sourceMapText);
    const program = path.join(folder, 'main.js');
    fs.writeFileSync(program, driver(compiled));
    const { samples } = profiled(t, program, []);
    const lines = typescript.split('\n');
    const [first, last] = [lines.findIndex((text) => text.includes('burnTyped')) + 1, lines.indexOf('};') + 1];
    let [count, inLoop] = [0, 0];
    for (const { stack, values } of samples) {
      const frame = stack.find(({ name }) => name.endsWith('burnTyped'));
      if (frame === undefined) continue;
      const { file, line } = frame;
      assert.equal(file, source);
      assert.ok(line >= first && line <= last, `line ${line}`);
      count += values.samples;
      if (lines[line - 1].endsWith('// burns') || lines[line - 1].includes('for (')) inLoop += values.samples;
    }
    assert.ok(count > 20, `${count} samples`);
    assert.ok(inLoop > 0.9 * count, `${inLoop} of ${count} in the loop`);
  });
}
