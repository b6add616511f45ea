// Writes the declarations of the package: those that tsc emits for the entry points, and of other modules only those that they import.
// `npm run types`, or with another directory than `types` as its argument.

import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const directory = process.argv[2] ?? join(here, 'types');
const compiler = join(here, 'node_modules/typescript/bin/tsc');
const { status } = spawnSync(process.execPath, [compiler, '-p', here, '--outDir', directory], { stdio: 'inherit' });
if (status !== 0) process.exit(1);
const { exports } = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const imported = new Set(Object.values(exports).flatMap(({ types }) => types?.replace('./types/', '') ?? []));
for (const name of imported) {
  for (const [, module] of readFileSync(join(directory, name), 'utf8').matchAll(/["']\.\/(\w+)\.js["']/g)) imported.add(`${module}.d.ts`);
}
for (const name of readdirSync(directory)) if (!imported.has(name)) rmSync(join(directory, name));
