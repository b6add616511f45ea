'use strict';
// Checks that a library's file is complete. The dynamic linker maps segments without a check of the file's size, and a read
// past the end raises SIGBUS. Other formats are left to the linker's own message. Called by `native.js`.

const fs = require('node:fs');

const HEADER_BYTES = 64;
const MAGIC = 0x7f454c46;
/** `EI_CLASS` 64-bit, `EI_DATA` little-endian. */
const CLASS_AND_DATA = 0x0201;
const PROGRAM_HEADER_BYTES = 56;
const LOAD = 1;

/** Throws when the file ends before its sections and segments (`Elf64_Ehdr` and `Elf64_Phdr` in elf(5)). @param {string} file */
function checkComplete(file) {
  const descriptor = fs.openSync(file, 'r');
  try {
    const { size } = fs.fstatSync(descriptor);
    const header = Buffer.alloc(HEADER_BYTES);
    const isElf = fs.readSync(descriptor, header, 0, HEADER_BYTES, 0) === HEADER_BYTES && header.readUInt32BE(0) === MAGIC;
    if (!isElf || header.readUInt16BE(4) !== CLASS_AND_DATA) return;
    const programHeaders = Number(header.readBigUInt64LE(32));
    const sectionHeaders = Number(header.readBigUInt64LE(40));
    const [programHeaderBytes, programHeaderCount] = [header.readUInt16LE(54), header.readUInt16LE(56)];
    const [sectionHeaderBytes, sectionHeaderCount] = [header.readUInt16LE(58), header.readUInt16LE(60)];
    let end = sectionHeaders + sectionHeaderBytes * sectionHeaderCount;
    const table = Buffer.alloc(programHeaderBytes * programHeaderCount);
    const read = fs.readSync(descriptor, table, 0, table.length, programHeaders);
    end = Math.max(end, programHeaders + table.length);
    for (let offset = 0; offset + PROGRAM_HEADER_BYTES <= read; offset += programHeaderBytes) {
      if (table.readUInt32LE(offset) !== LOAD) continue;
      end = Math.max(end, Number(table.readBigUInt64LE(offset + 8)) + Number(table.readBigUInt64LE(offset + 32)));
    }
    if (end > size) throw new Error(`${file} is truncated: ${size} bytes of at least ${end}`);
  } finally {
    fs.closeSync(descriptor);
  }
}

module.exports = { checkComplete };
