// What the installed package must do in its first minute: start, label, profile into files, stop.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import * as spanprof from 'spanprof';

const required = createRequire(import.meta.url)('spanprof');
assert.equal(required.tagWrapper, spanprof.tagWrapper, 'import and require give one package');

assert.equal(spanprof.start({ serviceName: 'first-run', fileDirectory: 'profiles' }), true);
spanprof.tagWrapper({ endpoint: '/cart' }, () => {
  const until = process.cpuUsage().user + 500_000;
  while (process.cpuUsage().user < until) JSON.stringify(Array.from({ length: 500 }, (_, number) => number * number));
});
const { 'samples.cpu': samples } = spanprof.stats();
assert.equal(await spanprof.stop(), true);
const files = fs.readdirSync('profiles', { recursive: true }).filter((name) => String(name).endsWith('.pb.gz'));
assert.ok(files.length > 0, 'a profile was written');
console.log(`${process.version}: ${files.length} file(s), ${samples} samples before stop`);
