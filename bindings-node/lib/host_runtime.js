'use strict';
// Which JavaScript runtime this is. Runtimes that imitate Node.js call themselves `node` too, and are known by the version of their
// own in `process.versions`.

/** Runtimes with another engine, or with another build of V8. */
const OTHERS = { bun: 'Bun', deno: 'Deno', graalvm: 'GraalVM' };
/** Node.js in another program: whether its stacks can be walked is found out by the self-test. */
const EMBEDDERS = { electron: 'Electron', nw: 'NW.js' };

/** @param {Record<string, string>} runtimes */
function nameFrom(runtimes) {
  const key = Object.keys(runtimes).find((key) => process.versions[key] !== undefined);
  return key && `${runtimes[key]} ${process.versions[key]}`;
}

/** Name and version of a runtime that is not Node.js; undefined in Node.js. */
function otherThanNode() {
  const release = process.release?.name;
  return nameFrom(OTHERS) ?? (release === 'node' ? undefined : `${release ?? 'this runtime'} ${process.version}`);
}

/** Name and version of this runtime. */
function name() {
  return otherThanNode() ?? nameFrom(EMBEDDERS) ?? `Node.js ${process.version}`;
}

module.exports = { otherThanNode, name };
