'use strict';
// Where the program is: executing lines in each tier, inlined functions above their callers, sources of maps.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { execFileSync } = require('node:child_process');
const pprof = require('./pprof_file.js');

const programs = path.join(__dirname, 'programs');
const major = Number(process.versions.node.split('.')[0]);

/** Runs a program under the profiler; what it printed, and its samples. */
function profiled(t, program, options, ...words) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-places-'));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const said = execFileSync(process.execPath, [...options, program, folder, ...words], { encoding: 'utf8', timeout: 180_000 });
  return { said: JSON.parse(said), samples: pprof.readAll(folder, 'cpu') };
}

/** Line on which a comment stands in a program. */
function lineOf(file, comment) {
  const lines = fs.readFileSync(path.join(programs, file), 'utf8').split('\n');
  const line = lines.findIndex((text) => text.endsWith(`// ${comment}`)) + 1;
  assert.ok(line > 0, `${file} has no comment "${comment}"`);
  return line;
}

/** Four standard errors of a share among so many samples. */
const allowance = (share, count) => 4 * Math.sqrt(share * (1 - share) / count);

const noMaglev = major >= 22 ? ['--no-maglev'] : [];
const tiers = {
  interpreted: ['--no-opt', '--no-sparkplug', ...noMaglev],
  optimised: [],
};
for (const [tier, options] of Object.entries(tiers)) {
  test(`${tier} code shows the line that executes`, (t) => {
    const { said, samples } = profiled(t, path.join(programs, 'places.js'), options, '0.8');
    const lines = { [lineOf('places.js', 'three')]: 'three', [lineOf('places.js', 'one')]: 'one' };
    const seen = { three: 0, one: 0 };
    let count = 0;
    for (const { stack, values } of samples) {
      const at = stack.findIndex(({ name }) => name === 'burn');
      if (at < 0 || stack[at + 1]?.name !== 'work') continue;
      const { line, file } = stack[at + 1];
      assert.ok(line in lines, `${file}:${line} calls nothing that burns`);
      assert.ok(stack[at].line >= 10 && stack[at].line <= 14, `burn does not reach to line ${stack[at].line}`);
      seen[lines[line]] += values.cpu;
      count += values.samples;
    }
    const total = seen.three + seen.one;
    const should = said.turned.three / (said.turned.three + said.turned.one);
    assert.ok(count > 100, `${count} samples`);
    assert.ok(Math.abs(seen.three / total - should) < allowance(should, count), `${seen.three / total}, really ${should}`);
  });
}

test('inlined functions are frames of their own above their callers, across files too', (t) => {
  const { samples } = profiled(t, path.join(programs, 'inlined.js'), [], '1.2');
  const truth = { half: 0.5, third: 0.3, fifth: 0.2 };
  const seen = { half: 0, third: 0, fifth: 0 };
  const wrong = new Map();
  const expect = (isRight, stack) => {
    if (isRight) return;
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
    seen[small] += values.cpu;
    const about = stack.slice(0, hot + 1);
    const { file, line } = stack[hot];
    // The middle compiler unrolls a first turn and has one place, the loop's head, for all the turns after it.
    const isHead = major >= 22 && line === lineOf('inlined.js', 'turns');
    if (isHead) onHead += values.samples;
    expect(path.basename(file) === 'inlined.js' && (isHead || line === lineOf('inlined.js', `calls ${small}`)), about);
    expect(path.basename(stack[hot - 1].file) === 'inlined.js', about);
    const inner = stack[hot - 2];
    if (inner?.name !== 'step') continue;
    expect(stack[hot - 1].line === lineOf('inlined.js', `in ${small}`), about);
    const lines = ['works in step', 'enters step'].map((comment) => lineOf('inlined_step.js', comment));
    expect(path.basename(inner.file) === 'inlined_step.js' && lines.includes(inner.line), about);
  }
  assert.deepEqual([...wrong], []);
  assert.ok(onHead < 0.05 * count, `${onHead} of ${count} before the last compiler`);
  const total = seen.half + seen.third + seen.fifth;
  assert.ok(count > 300, `${count} samples`);
  // The loop of the caller is one turn in a hundred.
  assert.ok(onCaller < 0.05 * (total + onCaller), `${onCaller / (total + onCaller)} on the caller`);
  for (const [name, should] of Object.entries(truth)) {
    const is = seen[name] / total;
    assert.ok(Math.abs(is - should) < 0.03 + allowance(should, count), `${name}: ${is.toFixed(3)}, really ${should}`);
  }
});

test('a loop that V8 compiled while it ran before the start has its name, its lines and what was inlined', (t) => {
  const { said, samples } = profiled(t, path.join(programs, 'late.js'), [], '0.4');
  const counts = { goesOn: 0, entered: 0, inlined: 0, elsewhere: 0 };
  for (const { stack, values } of samples) {
    const at = stack.findIndex(({ name }) => name === 'goesOn' || name === 'entered');
    const step = stack[at - 1]?.name === 'step' && path.basename(stack[at - 1].file) === 'inlined_step.js';
    if (at > (step ? 1 : 0)) continue;
    if (at < 0) {
      counts.elsewhere += values.samples;
      continue;
    }
    const { name, line, file } = stack[at];
    counts[name] += values.samples;
    if (step) counts.inlined += values.samples;
    assert.equal(path.basename(file), 'late.js');
    assert.ok(line >= lineOf('late.js', name === 'goesOn' ? 'goes on' : 'entered') && line <= lineOf('late.js', `step of ${name}`) + 1, `${name}:${line}`);
  }
  assert.equal(said.ended, 0);
  assert.ok(counts.goesOn > 50 && counts.entered > 50, JSON.stringify(counts));
  assert.ok(counts.inlined > 0.5 * (counts.goesOn + counts.entered), JSON.stringify(counts));
});

test('a labelled sample has its executing line and column', (t) => {
  const program = path.join(programs, 'labelled_place.js');
  const { samples } = profiled(t, program, [], '0.6');
  const text = fs.readFileSync(program, 'utf8').split('\n');
  let [count, atWork] = [0, 0];
  for (const { stack, values, labels } of samples) {
    const [leaf] = stack;
    if (leaf.name !== 'burn') continue;
    assert.equal(labels.endpoint, '/cart');
    count += values.samples;
    // An operator of the loop, or the loop itself.
    const words = text[leaf.line - 1].slice(leaf.column - 1);
    const isLoop = leaf.column > 0 && (text[leaf.line - 1].endsWith('// burns') || text[leaf.line - 1].includes('for ('));
    if (isLoop && /^(\*|\+|%|<|for)/.test(words)) atWork += values.samples;
  }
  assert.ok(count > 50, `${count} samples`);
  assert.ok(atWork > 0.95 * count, `${atWork} of ${count} at an operator`);
});

test('functions that were made and dropped are forgotten, those in use are named', (t) => {
  // V8 of Node.js 26 keeps what was made of a text for the next time, unless it is told not to.
  const { said, samples } = profiled(t, path.join(programs, 'churn.js'), ['--expose-gc', '--no-compilation-cache'], '10000');
  const end = said.held.at(-1);
  assert.equal(end.code_events_lost, 0);
  // Each function made is two pieces of code. How many are forgotten is up to the collector and to how often the drain
  // looks: those whose memory other code has taken were ended before. Scripts and names follow some drains later.
  assert.ok(end.codes_forgotten > 0, JSON.stringify(said.held));
  assert.ok(end.codes < 15_000, JSON.stringify(said.held));
  const own = samples.filter(({ stack }) => stack.some(({ name }) => name === said.last));
  assert.ok(own.length > 0 && own.every(({ stack }) => stack[0].name !== '[code_ended]'), `${own.length} samples`);
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
  test(`TypeScript shows its own lines, by a source map ${kind}`, (t) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spanprof-typed-'));
    t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
    for (const name of ['src', 'dist']) fs.mkdirSync(path.join(folder, name));
    const source = path.join(folder, 'src', 'burner.ts');
    fs.writeFileSync(source, typescript);
    const { ModuleKind, ScriptTarget, transpileModule } = require('typescript');
    const maps = kind === 'inline' ? { inlineSourceMap: true } : { sourceMap: true };
    // The compiler names a source by its last part, beside this.
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
    let [count, burning] = [0, 0];
    for (const { stack, values } of samples) {
      const frame = stack.find(({ name }) => name.endsWith('burnTyped'));
      if (frame === undefined) continue;
      const { file, line } = frame;
      assert.equal(file, source);
      assert.ok(line >= first && line <= last, `line ${line}`);
      count += values.samples;
      if (lines[line - 1].endsWith('// burns') || lines[line - 1].includes('for (')) burning += values.samples;
    }
    assert.ok(count > 20, `${count} samples`);
    assert.ok(burning > 0.9 * count, `${burning} of ${count} in the loop`);
  });
}
