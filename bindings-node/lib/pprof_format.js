'use strict';
// The messages of google/pprof's `profile.proto` as objects with the property names of protobufjs, and as bytes. Not here: the
// meaning of the values (`pprof.js`).

/** @typedef {number | bigint | {low: number, high: number}} Integer a number, or a 64-bit integer of the package `long` */
/** @typedef {{type?: Integer, unit?: Integer}} ValueType indices of the string table */
/** @typedef {{key?: Integer, str?: Integer, num?: Integer, numUnit?: Integer}} Label */
/** @typedef {{locationId: Integer[], value: Integer[], label?: Label[]}} Sample locations are leaf first */
/** @typedef {{functionId?: Integer, line?: Integer, column?: Integer}} Line */
/** @typedef {{id: Integer, mappingId?: Integer, address?: Integer, line?: Line[], isFolded?: boolean}} Location */
/** @typedef {{id: Integer, name?: Integer, systemName?: Integer, filename?: Integer, startLine?: Integer}} FunctionEntry */
/**
 * @typedef {object} Mapping
 * @property {Integer} id
 * @property {Integer} [memoryStart]
 * @property {Integer} [memoryLimit]
 * @property {Integer} [fileOffset]
 * @property {Integer} [filename]
 * @property {Integer} [buildId]
 * @property {boolean} [hasFunctions]
 * @property {boolean} [hasFilenames]
 * @property {boolean} [hasLineNumbers]
 * @property {boolean} [hasInlineFrames]
 */
/**
 * A profile, as in google/pprof's `profile.proto`. Texts are indices of `stringTable`.
 * @typedef {object} Profile
 * @property {ValueType[]} sampleType
 * @property {Sample[]} sample
 * @property {Mapping[]} [mapping]
 * @property {Location[]} location
 * @property {FunctionEntry[]} function
 * @property {string[]} stringTable
 * @property {Integer} [dropFrames]
 * @property {Integer} [keepFrames]
 * @property {number} [timeNanos] nanoseconds since 1970; a number is exact to 256 ns
 * @property {number} [durationNanos]
 * @property {ValueType} [periodType]
 * @property {number} [period]
 * @property {Integer[]} [comment]
 * @property {Integer} [defaultSampleType]
 */

/** By message: field number, property, type; `[]` marks a repeated field. @type {Record<string, [number, string, string][]>} */
const MESSAGES = {
  Profile: [
    [1, 'sampleType', 'ValueType[]'], [2, 'sample', 'Sample[]'], [3, 'mapping', 'Mapping[]'], [4, 'location', 'Location[]'],
    [5, 'function', 'Function[]'], [6, 'stringTable', 'text[]'], [7, 'dropFrames', 'int'], [8, 'keepFrames', 'int'],
    [9, 'timeNanos', 'int'], [10, 'durationNanos', 'int'], [11, 'periodType', 'ValueType'], [12, 'period', 'int'],
    [13, 'comment', 'int[]'], [14, 'defaultSampleType', 'int'],
  ],
  ValueType: [[1, 'type', 'int'], [2, 'unit', 'int']],
  Sample: [[1, 'locationId', 'int[]'], [2, 'value', 'int[]'], [3, 'label', 'Label[]']],
  Label: [[1, 'key', 'int'], [2, 'str', 'int'], [3, 'num', 'int'], [4, 'numUnit', 'int']],
  Mapping: [
    [1, 'id', 'int'], [2, 'memoryStart', 'int'], [3, 'memoryLimit', 'int'], [4, 'fileOffset', 'int'], [5, 'filename', 'int'],
    [6, 'buildId', 'int'], [7, 'hasFunctions', 'bool'], [8, 'hasFilenames', 'bool'], [9, 'hasLineNumbers', 'bool'],
    [10, 'hasInlineFrames', 'bool'],
  ],
  Location: [[1, 'id', 'int'], [2, 'mappingId', 'int'], [3, 'address', 'int'], [4, 'line', 'Line[]'], [5, 'isFolded', 'bool']],
  Line: [[1, 'functionId', 'int'], [2, 'line', 'int'], [3, 'column', 'int']],
  Function: [[1, 'id', 'int'], [2, 'name', 'int'], [3, 'systemName', 'int'], [4, 'filename', 'int'], [5, 'startLine', 'int']],
};

/** Length-delimited wire type. */
const BYTES = 2;

/**
 * Reads a message that the native module has written.
 * @param {Buffer} data
 * @param {string} [message]
 * @returns {any} with every repeated field, and the single fields that are present
 */
function decode(data, message = 'Profile') {
  /** @type {Record<string, any>} */
  const result = {};
  for (const [, name, type] of MESSAGES[message]) if (type.endsWith('[]')) result[name] = [];
  let offset = 0;
  const varint = () => {
    let value = 0n;
    let [small, scale] = [0, 1];
    for (let length = 0; ; length++) {
      const byte = data[offset++];
      // Seven groups of seven bits are an exact number.
      if (length < 7) {
        small += (byte & 0x7f) * scale;
        scale *= 128;
      } else value |= BigInt(byte & 0x7f) << BigInt(7 * length);
      if (byte < 0x80) return length < 7 ? small : Number(BigInt.asIntN(64, value + BigInt(small)));
    }
  };
  while (offset < data.length) {
    const key = varint();
    const [, name, declared] = MESSAGES[message].find(([number]) => number === key >>> 3) ?? [0, '', ''];
    const type = declared.replace('[]', '');
    const add = (/** @type {unknown} */ value) => {
      if (declared.endsWith('[]')) result[name].push(value);
      else if (name !== '') result[name] = value;
    };
    if ((key & 7) !== BYTES) {
      const value = varint();
      add(type === 'bool' ? value !== 0 : value);
      continue;
    }
    const end = varint() + offset;
    if (type === 'int') {
      while (offset < end) add(varint());
    } else if (type === 'text') add(data.toString('utf8', offset, end));
    else if (type !== '') add(decode(data.subarray(offset, end), type));
    offset = end;
  }
  return result;
}

/**
 * @param {number[]} out
 * @param {any} value an {@link Integer}, or a boolean
 */
function putInteger(out, value) {
  let rest;
  if (typeof value === 'number' || typeof value === 'boolean') {
    let small = Math.trunc(Number(value));
    if (small >= 0 && small <= Number.MAX_SAFE_INTEGER) {
      for (; small >= 0x80; small = Math.floor(small / 128)) out.push((small % 128) | 0x80);
      out.push(small);
      return;
    }
    rest = BigInt(Number.isFinite(small) ? small : 0);
  } else {
    rest = typeof value === 'bigint' ? value : (BigInt(value.high | 0) << 32n) | BigInt(value.low >>> 0);
  }
  rest = BigInt.asUintN(64, rest);
  for (; rest >= 0x80n; rest >>= 7n) out.push(Number(rest & 0x7fn) | 0x80);
  out.push(Number(rest));
}

/**
 * @param {number[]} out
 * @param {ArrayLike<number>} bytes
 */
function putBytes(out, bytes) {
  putInteger(out, bytes.length);
  for (let i = 0; i < bytes.length; i++) out.push(bytes[i]);
}

/**
 * @param {any} value
 * @param {string} message
 * @returns {number[]}
 */
function bytesOf(value, message) {
  /** @type {number[]} */
  const out = [];
  for (const [number, name, declared] of MESSAGES[message]) {
    const field = value[name];
    if (field === undefined || field === null) continue;
    const type = declared.replace('[]', '');
    const isRepeated = declared.endsWith('[]');
    if (type === 'int' && isRepeated) {
      if (field.length === 0) continue;
      /** @type {number[]} */
      const packed = [];
      for (const item of field) putInteger(packed, item);
      putInteger(out, (number << 3) | BYTES);
      putBytes(out, packed);
      continue;
    }
    for (const item of isRepeated ? field : [field]) {
      const isNumber = type === 'int' || type === 'bool';
      putInteger(out, (number << 3) | (isNumber ? 0 : BYTES));
      if (isNumber) putInteger(out, item);
      else putBytes(out, type === 'text' ? Buffer.from(String(item)) : bytesOf(item, type));
    }
  }
  return out;
}

/**
 * @param {Profile} profile
 * @returns {Buffer}
 */
function encode(profile) {
  return Buffer.from(bytesOf(profile, 'Profile'));
}

module.exports = { decode, encode };
