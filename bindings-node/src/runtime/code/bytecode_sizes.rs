//! Sizes of V8's bytecodes: V8's own table (`Bytecodes::kBytecodeSizes`), which older versions export. In newer ones the table
//! is searched for in the program's file and recognized by its structure. Called by the drain, once. A wrong table is harmless:
//! baseline code has positions only if its bytecode sizes add up to the last byte.
//!
//! # Changes in V8
//! Upstream: `src/interpreter/bytecodes.h` (`Bytecodes::kBytecodeSizes`, order of the first bytecodes).
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 13.6 (24) | the table is not exported | `BytecodeSizes::find` |

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use spanprof_signal::guarded;

use crate::positions::BytecodeLengths;
use crate::runtime::v8::lookup;

/// Sizes with plain, wide (doubled) and extra-wide (quadrupled) operands.
#[derive(Debug, PartialEq, Eq)]
pub struct BytecodeSizes([Vec<u8>; 3]);

const WIDE: u8 = 0;
const EXTRA_WIDE: u8 = 1;
/// Last opcode that only a debugger inserts: four prefixes and seven debug breaks come first in the table.
const LAST_DEBUG_BREAK: u8 = 10;
const FIRST_SIZES: [u8; 11] = [1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 6];
const MIN_BYTECODES: usize = 120;
const MAX_BYTECODES: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;

impl BytecodeSizes {
    /// The sizes of this process's V8; `None` when no unique table is found.
    pub fn find() -> Option<Self> {
        if let Some(address) = lookup::data(c"_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE") {
            let mut table = [0u8; 3 * MAX_BYTECODES];
            // SAFETY: the destination has this length; the source may be any address.
            let read = unsafe { guarded::copy(table.as_mut_ptr(), address, table.len()) };
            return read.then(|| Self::of(&table)).flatten();
        }
        let mut program = File::open("/proc/self/exe").ok()?;
        let (offset, len) = read_only_data(&mut program)?;
        search(&mut program, offset, len)
    }

    /// The table at the start of `bytes`, recognized by its structure: a scalable operand doubles, then doubles again.
    fn of(bytes: &[u8]) -> Option<Self> {
        let fits = |count: &usize| {
            let rows = (0..*count).map(|at| (bytes[at], bytes[count + at], bytes[2 * count + at]));
            rows.into_iter().all(|(plain, wide, extra)| {
                (1..=32).contains(&plain) && wide >= plain && extra.checked_sub(wide) == (wide - plain).checked_mul(2)
            })
        };
        let max_count = MAX_BYTECODES.min(bytes.len() / 3);
        let mut counts = (MIN_BYTECODES..=max_count).filter(fits);
        let count = counts.next().filter(|_| counts.next().is_none())?;
        let row = |row: usize| bytes[row * count..(row + 1) * count].to_vec();
        Some(Self([row(0), row(1), row(2)])).filter(|found| found.0[0].starts_with(&FIRST_SIZES))
    }
}

impl BytecodeLengths for BytecodeSizes {
    fn length(&self, bytecode: &[u8]) -> Option<usize> {
        let first = *bytecode.first()?;
        let (row, prefix) = match first {
            WIDE => (1, 1),
            EXTRA_WIDE => (2, 1),
            _ => (0, 0),
        };
        let opcode = *bytecode.get(prefix)?;
        let size = *self.0[row].get(opcode as usize).filter(|_| opcode > LAST_DEBUG_BREAK)?;
        Some(prefix + size as usize)
    }
}

/// Offset and size of the read-only data in the program's file.
fn read_only_data(program: &mut (impl Read + Seek)) -> Option<(u64, u64)> {
    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |number, byte| number << 8 | *byte as u64)
    }
    let mut read = |offset: u64, len: usize| -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        program.seek(SeekFrom::Start(offset)).ok()?;
        program.read_exact(&mut bytes).ok()?;
        Some(bytes)
    };
    // A 64-bit ELF file (elf(5)): its section headers, and the section with their names.
    let header = read(0, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, count) = (number(&header[0x28..0x30]), number(&header[0x3c..0x3e]) as usize);
    let sections = read(table, count * 64)?;
    let section = |at: usize| sections.get(at * 64..(at + 1) * 64);
    let offset_and_size = |section: &[u8]| (number(&section[0x18..0x20]), number(&section[0x20..0x28]));
    let (names, names_len) = offset_and_size(section(number(&header[0x3e..0x40]) as usize)?);
    let names = read(names, usize::try_from(names_len).ok().filter(|len| *len < 1 << 20)?)?;
    let is_constants = |section: &&[u8]| {
        names.get(number(&section[..4]) as usize..).is_some_and(|name| name.starts_with(b".rodata\0"))
    };
    (0..count).filter_map(section).find(is_constants).map(offset_and_size)
}

fn search(program: &mut (impl Read + Seek), offset: u64, len: u64) -> Option<BytecodeSizes> {
    program.seek(SeekFrom::Start(offset)).ok()?;
    let mut constants = program.take(len);
    let mut bytes = Vec::new();
    loop {
        // A table may span two chunks.
        let overlap = bytes.len().min(3 * MAX_BYTECODES);
        bytes.drain(..bytes.len() - overlap);
        let read = constants.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut bytes).ok()?;
        let sizes =
            memchr::memmem::find_iter(&bytes, &FIRST_SIZES).find_map(|start| BytecodeSizes::of(&bytes[start..]));
        if sizes.is_some() || read == 0 {
            return sizes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// As V8's: some operands scale, some do not.
    fn table(count: usize) -> Vec<u8> {
        const FIRST: [(usize, usize); 11] =
            [(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (2, 2), (2, 3)];
        let operands = |at: usize| FIRST.get(at).copied().unwrap_or((at % 3, at % 4));
        let row = |scale: usize| {
            (0..count).map(move |at| {
                let (fixed, grow) = operands(at);
                (1 + fixed + scale * grow) as u8
            })
        };
        [1, 2, 4].into_iter().flat_map(row).collect()
    }

    #[test]
    fn the_table_is_recognized_by_its_structure_at_any_offset() {
        let noise: Vec<u8> =
            (0..CHUNK_BYTES as u32 - 100).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for before in [0, 7, noise.len()] {
            let constants = [&noise[..before], &FIRST_SIZES[..], &table(205), &noise[..5000]].concat();
            let len = constants.len() as u64;
            let found = search(&mut Cursor::new(constants), 0, len).unwrap();
            assert_eq!(found.0[1].len(), 205);
        }
        assert_eq!(search(&mut Cursor::new(noise), 0, 1 << 20), None);
    }

    #[test]
    fn a_bytecode_is_as_long_as_its_operands_and_its_prefix() {
        let sizes = BytecodeSizes::of(&[table(205), vec![0xff; 200]].concat()).unwrap();
        // Opcode 15: three scalable operands, no fixed one.
        assert_eq!(sizes.length(&[15, 0]), Some(4));
        assert_eq!(sizes.length(&[WIDE, 15]), Some(1 + 7));
        assert_eq!(sizes.length(&[EXTRA_WIDE, 15]), Some(1 + 13));
        assert_eq!(sizes.length(&[4]), None, "a debug break");
        assert_eq!([sizes.length(&[]), sizes.length(&[WIDE]), sizes.length(&[250])], [None, None, None]);
    }

    #[test]
    fn a_program_of_this_platform_has_read_only_data() {
        let (offset, len) = read_only_data(&mut File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(offset > 0 && len > 0);
        assert_eq!(read_only_data(&mut Cursor::new(vec![0; 200])), None);
    }
}
