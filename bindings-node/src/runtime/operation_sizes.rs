//! How long V8's byte-code operations are, in this very V8: its own table, exported by older ones, looked for in the
//! program's file in newer ones, known by its shape. Called by the drain, once. What is found is checked by its use: baseline
//! code has places only if its operations add up to the last byte.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use spanprof_signal::guarded;

use super::v8;
use crate::positions::Operations;

/// Lengths with plain, doubled and quadrupled operands.
#[derive(Debug, PartialEq, Eq)]
pub struct OperationSizes([Vec<u8>; 3]);

const WIDE: u8 = 0;
const EXTRA_WIDE: u8 = 1;
/// What a debugger puts in place of operations: four prefixes and seven marks come first in the table.
const LAST_OF_DEBUGGER: u8 = 10;
const BEGINNING: [u8; 11] = [1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 6];
const FEWEST: usize = 120;
const MOST: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;

impl OperationSizes {
    /// The sizes of this process's V8; `None` when they cannot be told for sure.
    pub fn find() -> Option<Self> {
        if let Some(address) = v8::data(c"_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE") {
            let mut table = [0u8; 3 * MOST];
            // SAFETY: the destination is ours and that long; the source may be anything.
            let read = unsafe { guarded::copy(table.as_mut_ptr(), address, table.len()) };
            return read.then(|| Self::of(&table)).flatten();
        }
        let mut program = File::open("/proc/self/exe").ok()?;
        let (offset, len) = read_only_data(&mut program)?;
        search(&mut program, offset, len)
    }

    /// The table that `bytes` begin with, by its shape: an operand that grows doubles, then doubles again.
    fn of(bytes: &[u8]) -> Option<Self> {
        let fits = |count: &usize| {
            let rows = (0..*count).map(|at| (bytes[at], bytes[count + at], bytes[2 * count + at]));
            rows.into_iter().all(|(plain, wide, extra)| {
                (1..=32).contains(&plain) && wide >= plain && extra.checked_sub(wide) == (wide - plain).checked_mul(2)
            })
        };
        let most = MOST.min(bytes.len() / 3);
        let mut counts = (FEWEST..=most).filter(fits);
        let count = counts.next().filter(|_| counts.next().is_none())?;
        let row = |row: usize| bytes[row * count..(row + 1) * count].to_vec();
        Some(Self([row(0), row(1), row(2)])).filter(|found| found.0[0].starts_with(&BEGINNING))
    }
}

impl Operations for OperationSizes {
    fn length(&self, byte_code: &[u8]) -> Option<usize> {
        let first = *byte_code.first()?;
        let (row, prefix) = match first {
            WIDE => (1, 1),
            EXTRA_WIDE => (2, 1),
            _ => (0, 0),
        };
        let operation = *byte_code.get(prefix)?;
        let size = *self.0[row].get(operation as usize).filter(|_| operation > LAST_OF_DEBUGGER)?;
        Some(prefix + size as usize)
    }
}

/// Where the program's constants are in its file.
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
    // Of a 64-bit ELF file: its section headers, and the section of their names.
    let header = read(0, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, count) = (number(&header[0x28..0x30]), number(&header[0x3c..0x3e]) as usize);
    let sections = read(table, count * 64)?;
    let section = |at: usize| sections.get(at * 64..(at + 1) * 64);
    let place = |section: &[u8]| (number(&section[0x18..0x20]), number(&section[0x20..0x28]));
    let (names, names_len) = place(section(number(&header[0x3e..0x40]) as usize)?);
    let names = read(names, usize::try_from(names_len).ok().filter(|len| *len < 1 << 20)?)?;
    let is_constants = |section: &&[u8]| {
        names.get(number(&section[..4]) as usize..).is_some_and(|name| name.starts_with(b".rodata\0"))
    };
    (0..count).filter_map(section).find(is_constants).map(place)
}

fn search(program: &mut (impl Read + Seek), offset: u64, len: u64) -> Option<OperationSizes> {
    program.seek(SeekFrom::Start(offset)).ok()?;
    let mut constants = program.take(len);
    let mut bytes = Vec::new();
    loop {
        // A table may lie across two chunks.
        let kept = bytes.len().min(3 * MOST);
        bytes.drain(..bytes.len() - kept);
        let read = constants.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut bytes).ok()?;
        let found = memchr::memmem::find_iter(&bytes, &BEGINNING).find_map(|at| OperationSizes::of(&bytes[at..]));
        if found.is_some() || read == 0 {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// As V8's: some operands grow, some do not.
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
    fn the_table_is_known_by_its_shape_wherever_it_lies() {
        let noise: Vec<u8> =
            (0..CHUNK_BYTES as u32 - 100).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for before in [0, 7, noise.len()] {
            let constants = [&noise[..before], &BEGINNING[..], &table(205), &noise[..5000]].concat();
            let len = constants.len() as u64;
            let found = search(&mut Cursor::new(constants), 0, len).unwrap();
            assert_eq!(found.0[1].len(), 205);
        }
        assert_eq!(search(&mut Cursor::new(noise), 0, 1 << 20), None);
    }

    #[test]
    fn operations_are_as_long_as_their_operands_and_their_prefix() {
        let sizes = OperationSizes::of(&[table(205), vec![0xff; 200]].concat()).unwrap();
        // Operation 15: three operands that grow, none that does not.
        assert_eq!(sizes.length(&[15, 0]), Some(4));
        assert_eq!(sizes.length(&[WIDE, 15]), Some(1 + 7));
        assert_eq!(sizes.length(&[EXTRA_WIDE, 15]), Some(1 + 13));
        assert_eq!(sizes.length(&[4]), None, "a debugger's");
        assert_eq!([sizes.length(&[]), sizes.length(&[WIDE]), sizes.length(&[250])], [None, None, None]);
    }

    #[test]
    fn a_program_of_this_platform_has_constants() {
        let (offset, len) = read_only_data(&mut File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(offset > 0 && len > 0);
        assert_eq!(read_only_data(&mut Cursor::new(vec![0; 200])), None);
    }
}
