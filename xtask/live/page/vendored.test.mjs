// Code of others in the page is that of their packages, whose hashes are in package-lock.json.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

test('the Preact of the page is the file of its package', () => {
  const [vendored, packaged] = ['../../../core/workbench/view/src/page/preact.min.umd.js', './node_modules/preact/dist/preact.min.umd.js'];
  const [page, npm] = [vendored, packaged].map((name) => readFileSync(new URL(name, import.meta.url)));
  assert.ok(page.equals(npm), 'copy dist/preact.min.umd.js of the version in package.json to core/workbench/view/src/page');
});
