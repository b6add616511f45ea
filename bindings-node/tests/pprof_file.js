'use strict';
// Reads pprof files with Node's own modules only: samples with values, labels and frames, leaf first.

const fs = require('node:fs');
const path = require('node:path');
const zlib = require('node:zlib');

// The profiles of test programs must be complete: on a loaded machine, resolving a window takes longer than the default allows.
process.env.SPANPROF_STOP_TIMEOUT ??= '60';

/** Fields of one message: numbers as BigInt, strings and messages as buffers. */
function* fields(data) {
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = data[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < data.length) {
    const key = Number(varint());
    const field = key >> 3;
    if ((key & 7) === 0) yield [field, varint()];
    else if ((key & 7) === 2) {
      const length = Number(varint());
      yield [field, data.subarray(at, (at += length))];
    } else throw new Error(`a wire type that pprof does not have: ${key & 7}`);
  }
}

/** A repeated number, packed or not. */
function numbers(value) {
  if (typeof value === 'bigint') return [Number(value)];
  // A packed list is a sequence of varints without keys.
  const list = [];
  let [current, shift] = [0n, 0n];
  for (const byte of value) {
    current |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) {
      list.push(Number(current));
      [current, shift] = [0n, 0n];
    } else shift += 7n;
  }
  return list;
}

const record = (message) => Object.fromEntries([...fields(message)].map(([field, value]) => [field, typeof value === 'bigint' ? Number(value) : value]));

/** Samples of one file: `{values: {type: number}, labels, stack: [{name, file, line, column}]}`. */
function read(file) {
  const profile = [...fields(zlib.gunzipSync(fs.readFileSync(file)))];
  const of = (wanted) => profile.filter(([field]) => field === wanted).map(([, value]) => value);
  const texts = of(6).map(String);
  const functions = new Map(of(5).map(record).map((found) => [found[1], { name: texts[found[2] ?? 0], file: texts[found[4] ?? 0] }]));
  const locations = new Map(of(4).map((message) => {
    const lines = [...fields(message)].filter(([field]) => field === 4).map(([, line]) => record(line));
    return [record(message)[1], lines.map((line) => ({ ...functions.get(line[1]), line: line[2] ?? 0, column: line[3] ?? 0 }))];
  }));
  const types = of(1).map(record).map((type) => texts[type[1]]);
  return of(2).map((message) => {
    const sample = { values: {}, labels: {}, stack: [] };
    let counts = [];
    for (const [field, value] of fields(message)) {
      if (field === 1) for (const location of numbers(value)) sample.stack.push(...(locations.get(location) ?? []));
      else if (field === 2) counts = counts.concat(numbers(value));
      else if (field === 3) {
        const label = record(value);
        sample.labels[texts[label[1]]] = label[2] ? texts[label[2]] : label[3] ?? 0;
      }
    }
    types.forEach((type, at) => { sample.values[type] = counts[at]; });
    return sample;
  });
}

/** Samples of all files of a type (`cpu`, `wall`, …) in a directory. */
function readAll(folder, kind) {
  const files = fs.readdirSync(folder).filter((name) => name.startsWith(`${kind}-`) && name.endsWith('.pb.gz'));
  return files.sort().flatMap((name) => read(path.join(folder, name)));
}

module.exports = { read, readAll };
