'use strict';
// The Node.js runner of the conformance suite: the cases of `core/conformance` through this package's own API.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const yaml = require('yaml');
const spanprof = require('spanprof');
const scope = require('../lib/scope.js');
const { toJson } = require('../lib/options.js');
const { native } = require('../lib/native.js');

const SUITE = path.join(__dirname, '..', '..', 'core', 'conformance');
// Here a scope is a call, so that scopes cannot end in any order.
const isCase = (name) => name.endsWith('.yaml') && name !== 'scopes_end_in_any_order.yaml';
const CASES = fs.readdirSync(path.join(SUITE, 'cases')).filter(isCase).sort();
/** Keys of maps with names chosen by the user. */
const USER_DEFINED = new Set(['tags', 'resource_attributes', 'headers']);

const camelCase = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** A case's configuration in this package's spelling. */
function options(value) {
  if (Array.isArray(value)) return value.map(options);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [camelCase(key), USER_DEFINED.has(key) ? inner : options(inner)]),
  );
}

/** Local roots of the open requests of a case, by their names. */
const requests = new Map();

function endRequest({ request, milliseconds, endpoint, isError }) {
  native.endRequest(requests.get(request), milliseconds, endpoint, isError);
  requests.delete(request);
}

/** The context id of a sample; `core/agent/profiler/src/conformance/case.rs` describes the fields. */
function contextOf({ scopes, prepared, boundIn, returned, request }) {
  if (request !== null && !requests.has(request)) requests.set(request, native.beginRequest(scope.current(), ''));
  const localRoot = requests.get(request) || '';
  const inRequest = (work) => (localRoot === '' ? work() : scope.run(native.contextInRequest(scope.current(), localRoot), work, []));
  const inside = ([labels, ...inner], work) => (labels === undefined
    ? inRequest(work)
    : spanprof.tagWrapper(prepared ? spanprof.prepareLabels(labels) : labels, () => inside(inner, work)));
  const call = boundIn === null ? scope.current : inside(boundIn, () => spanprof.bind(scope.current));
  const open = returned && boundIn === null ? scopes.slice(0, -1) : scopes;
  return inside(open, () => {
    const context = inside(scopes.slice(open.length), call);
    return returned ? scope.current() : context;
  });
}

for (const file of CASES) {
  test(`conformance case holds in Node.js: ${path.basename(file, '.yaml')}`, () => {
    const text = fs.readFileSync(path.join(SUITE, 'cases', file), 'utf8');
    const config = toJson(options(yaml.parse(text).config));
    const name = native.runCase(text, config, (sample) => contextOf(JSON.parse(sample)), (end) => endRequest(JSON.parse(end)));
    assert.equal(`${name}.yaml`, file);
  });
}

test('the conformance suite has cases, and a failing one is reported', () => {
  assert.ok(CASES.length >= 30, `only ${CASES.length}`);
  const broken = '{name: x, rule: y, steps: [{sample: {at_ms: 1, value: 10, stack: a}}, {close: {at_ms: 10, samples: {cpu: ["b 1"]}}}]}';
  assert.throws(() => native.runCase(broken, '{}', () => 0, () => {}), /"b 1"[^]*"a 1"/);
});

test('the public names are those of the conformance suite', async () => {
  const surface = yaml.parse(fs.readFileSync(path.join(SUITE, 'surface.yaml'), 'utf8'));
  const listed = [...surface.node.spanprof].sort();
  assert.deepEqual(Object.keys(spanprof).sort(), listed);
  const imported = async (name) => Object.keys(await import(name)).filter((key) => !['default', 'module.exports'].includes(key)).sort();
  assert.deepEqual(await imported('spanprof'), listed);
  for (const names of [Object.keys(require('spanprof/pprof')).sort(), await imported('spanprof/pprof')]) {
    assert.deepEqual(names, [...surface.node.pprof].sort());
  }
  for (const { names } of surface.concepts) assert.equal(typeof spanprof[names.node], 'function', names.node);
});

test('the options are the keys of the core and those of Node.js', () => {
  const flat = native.configKeys();
  const ofTheCore = Array.from({ length: flat.length / 3 }, (_, index) => camelCase(flat[3 * index]));
  const declared = fs.readFileSync(path.join(__dirname, '..', 'types', 'lifecycle.d.ts'), 'utf8');
  const [, options] = /export type Options = \{([^]*?)\n\};/.exec(declared);
  const keys = [...options.matchAll(/^ {4}(\w+)\?:/gm)].map(([, key]) => key);
  const ofNode = keys.filter((key) => !ofTheCore.includes(key));
  assert.deepEqual(ofTheCore.filter((key) => !keys.includes(key)), []);
  // Keys of this language only are documented in its guide.
  const guide = fs.readFileSync(path.join(__dirname, '..', '..', 'docs', 'reference', 'node.md'), 'utf8');
  for (const key of ofNode) assert.match(guide, new RegExp(`\\b${key}\\b`), `${key} is neither the core's nor in docs/reference/node.md`);
});
