// The handler of the layer: calls the function's own one, then sends the profile. Lambda freezes the process as soon as the
// response is sent, until the next invocation: what is not sent before may never be.

import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import spanprof from 'spanprof';

// A receiver that does not answer delays the response by at most this; the flush leaves MARGIN of the function's timeout. Seconds.
const LONGEST_FLUSH = 2;
const MARGIN = 0.2;
// The mark that `awslambda.streamifyResponse` puts on a handler.
const STREAMING = Symbol.for('aws.lambda.runtime.handler.streaming');

// Before the function's module is loaded, so that its initialization is in the profile.
try {
  spanprof.start();
} catch (error) {
  console.warn(`spanprof: not profiled: ${error.message}`);
}

const original = await find(process.env.ORIGINAL_HANDLER);

/** The handler `directory/file.name.property` below the function's directory. */
async function find(words) {
  const [, file, names] = /^(.*?[^/.]+)\.([^/]+)$/.exec(words);
  const base = path.resolve(process.env.LAMBDA_TASK_ROOT, file);
  const found = ['.js', '.mjs', '.cjs', ''].map((ending) => base + ending).find((name) => fs.existsSync(name));
  if (found === undefined) throw new Error(`no module ${base} for the handler ${words}`);
  const module = await import(pathToFileURL(found));
  const get = (from) => names.split('.').reduce((object, name) => object?.[name], from);
  // A CommonJS module is the default export of its namespace.
  return get(module) ?? get(module.default);
}

async function flush(context) {
  await spanprof.flush(Math.max(0, Math.min(LONGEST_FLUSH, context.getRemainingTimeInMillis() / 1000 - MARGIN)));
}

/** Calls a handler with a callback, or one that returns a promise. */
function call(event, context) {
  if (original.length < 3) return original(event, context);
  return new Promise((resolve, reject) => {
    original(event, context, (error, result) => (error ? reject(error) : resolve(result)));
  });
}

async function answering(event, context) {
  try {
    return await call(event, context);
  } finally {
    await flush(context);
  }
}

async function streaming(event, stream, context) {
  try {
    return await original(event, stream, context);
  } finally {
    await flush(context);
  }
}

streaming[STREAMING] = original[STREAMING];
export const handler = original[STREAMING] === undefined ? answering : streaming;
