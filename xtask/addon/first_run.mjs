// First run of the installed package: start, label, profile into files, stop; by `import`, by `require`, and, without the argument
// `alone`, preloaded into a program that does not import it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import * as spanprof from 'spanprof';

const required = createRequire(import.meta.url)('spanprof');
assert.equal(required.tagWrapper, spanprof.tagWrapper, 'import and require give one package');
const modules = fs.readdirSync('node_modules', { recursive: true }).filter((file) => file.endsWith('spanprof.node'));
assert.equal(modules.length, 1, `one native module, of this platform: ${modules}`);

const folder = `profiles-${process.version}`;
const written = (name) =>
  fs.readdirSync(name, { recursive: true }).map(String).filter((file) => file.endsWith('.pb.gz'));
const burn = `
  const until = process.cpuUsage().user + 500_000;
  while (process.cpuUsage().user < until) JSON.stringify(Array.from({ length: 500 }, (_, number) => number * number));`;

assert.equal(spanprof.start({ serviceName: 'first-run', fileDirectory: folder }), true);
spanprof.tagWrapper({ endpoint: '/cart' }, new Function(burn));
const { 'samples.cpu': samples } = spanprof.stats();
assert.equal(await spanprof.stop(), true);
assert.ok(written(folder).length > 0, 'a profile was written');

for (const flag of process.argv[2] === 'alone' ? [] : ['--import', '--require']) {
  const own = `${folder}${flag}`;
  const env = { ...process.env, SPANPROF_FILE_DIRECTORY: own };
  const done = spawnSync(process.execPath, [flag, 'spanprof/register', '-e', burn], { env, encoding: 'utf8', timeout: 60_000 });
  assert.equal(done.status, 0, done.stderr);
  assert.ok(written(own).length > 0, `${flag} spanprof/register wrote a profile: ${done.stderr}`);
}
console.log(`${process.version}: ${samples} samples before stop; import, require and register passed`);
