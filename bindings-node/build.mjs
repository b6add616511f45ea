// Builds the native module from source and puts it into the package: `npm run build`, and the `prepare` of
// `npm install ./bindings-node`. Published packages contain the module and no script.
//
// SPANPROF_CARGO_PROFILE selects the cargo profile: `release` (the default) or `dev`, which is built faster and samples slower.

import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import platform from './lib/platform.js';

const here = dirname(fileURLToPath(import.meta.url));
const profile = process.env.SPANPROF_CARGO_PROFILE || 'release';

/** @param {string} message */
function fail(message) {
  console.error(`spanprof: the native module was not built: ${message}`);
  process.exit(1);
}

if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) {
  console.error(`spanprof: no native module is built for ${platform()}; the package does nothing there. Supported: linux-x64, linux-arm64.`);
  process.exit(0);
}

const compiler = [process.env.RUSTFLAGS];
// Stacks are also walked through frames of the module. Code that is not optimized has frame pointers anyway.
if (profile !== 'dev') compiler.push('-C force-frame-pointers=yes');
// Else there is no dynamic library for musl.
if (platform().endsWith('-musl')) compiler.push('-C target-feature=-crt-static');
const flags = compiler.some(Boolean) ? { RUSTFLAGS: compiler.filter(Boolean).join(' ') } : {};
const cargo = spawnSync('cargo', ['build', '--locked', '-p', 'spanprof-node', '--profile', profile, '--message-format=json-render-diagnostics'], {
  cwd: here,
  env: { ...process.env, ...flags },
  stdio: ['ignore', 'pipe', 'inherit'],
  encoding: 'utf8',
  maxBuffer: 1 << 28,
});
if (cargo.error) {
  fail(`cannot run \`cargo\` (${/** @type {NodeJS.ErrnoException} */ (cargo.error).code}). A build from source needs Rust 1.88 or later ` +
    '(https://rustup.rs) and a C compiler.');
}
if (cargo.status !== 0) fail('cargo failed; its message is above.');
const library = cargo.stdout
  .split('\n')
  .filter((line) => line.startsWith('{'))
  .map((line) => JSON.parse(line))
  .filter((message) => message.reason === 'compiler-artifact' && message.target.name === 'spanprof_node')
  .flatMap((message) => message.filenames)
  .find((file) => file.endsWith('.so'));
if (!library) fail('expected a library among the artifacts of cargo, got none.');

const module = join(here, 'prebuilds', platform(), 'spanprof.node');
mkdirSync(dirname(module), { recursive: true });
// Unlinked, not overwritten: a running program may have it mapped.
rmSync(module, { force: true });
copyFileSync(library, module);
console.error(`spanprof: built ${module} (cargo profile ${profile})`);
