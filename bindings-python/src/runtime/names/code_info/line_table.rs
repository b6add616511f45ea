//! Decodes line tables: from an instruction to its line and column, for the three formats of CPython 3.9 to 3.15. Pure: bytes
//! in, position out; arbitrary bytes give some result without a panic.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 | `co_lnotab` (`Objects/lnotab_notes.txt`) | `lnotab` |
//! | 3.10 | `co_linetable` (PEP 626, `Objects/lnotab_notes.txt`) | `ranges` |
//! | 3.11 | `co_linetable` with columns (PEP 657, `Objects/locations.md`) | `Locations` |

use crate::runtime::interpreter::layout::LineTableFormat;

/// Line and column (1-based) of an instruction; 0 when the table has none for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The line; 0 for artificial instructions of the compiler.
    pub line: u32,
    /// The column in bytes, from 1; 0 when the table has none.
    pub column: u32,
}

/// The position of the instruction at `unit`, counted in code units of two bytes.
pub fn position(format: LineTableFormat, table: &[u8], first_line: u32, unit: u32) -> Position {
    let byte = u64::from(unit) * 2;
    match format {
        LineTableFormat::Lnotab => lnotab(table, first_line, byte),
        LineTableFormat::Ranges => ranges(table, first_line, byte),
        LineTableFormat::Locations => Locations { bytes: table }.find(first_line, byte),
    }
}

fn line_only(line: i64) -> Position {
    Position { line: u32::try_from(line).unwrap_or(0), column: 0 }
}

/// Pairs (bytes of code, signed line step): a step applies from its address on.
fn lnotab(table: &[u8], first_line: u32, byte: u64) -> Position {
    let mut line = i64::from(first_line);
    let mut address = 0u64;
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > byte {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line_only(line)
}

/// Pairs (length of a range, signed line step); -128 means that the range has no line and the line is unchanged.
fn ranges(table: &[u8], first_line: u32, byte: u64) -> Position {
    let mut line = i64::from(first_line);
    let mut end = 0u64;
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        let step = pair[1] as i8;
        if step != -128 {
            line += i64::from(step);
        }
        if byte < end {
            return if step == -128 { Position::default() } else { line_only(line) };
        }
    }
    Position::default()
}

/// Variable-length entries: a first byte with bit 7 set (four bits of kind, three of length - 1), then numbers of six
/// bits per byte.
struct Locations<'a> {
    bytes: &'a [u8],
}

impl Locations<'_> {
    const NO_COLUMNS: u8 = 13;
    const LONG: u8 = 14;
    const NONE: u8 = 15;

    fn find(mut self, first_line: u32, byte: u64) -> Position {
        let mut line = i64::from(first_line);
        let mut end = 0u64;
        while let Some(head) = self.next() {
            let kind = (head >> 3) & 15;
            end += (u64::from(head & 7) + 1) * 2;
            let mut column = 0;
            match kind {
                0..=9 => {
                    let columns = self.next().unwrap_or(0);
                    column = u32::from(kind) * 8 + u32::from((columns >> 4) & 7) + 1;
                }
                10..=12 => {
                    line += i64::from(kind - 10);
                    column = u32::from(self.next().unwrap_or(0)) + 1;
                }
                Self::NO_COLUMNS => line = line.wrapping_add(self.signed()),
                Self::LONG => {
                    line = line.wrapping_add(self.signed());
                    let _end_line = self.unsigned();
                    // Stored plus one, 0 for none, like `Position::column`.
                    column = u32::try_from(self.unsigned()).unwrap_or(0);
                }
                _ => {}
            }
            if byte < end {
                let line = if kind == Self::NONE { 0 } else { u32::try_from(line).unwrap_or(0) };
                return Position { line, column };
            }
            self.skip_to_head();
        }
        Position::default()
    }

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// Skips the numbers that `find` does not read (end columns).
    fn skip_to_head(&mut self) {
        while let Some((&first, rest)) = self.bytes.split_first() {
            if first & 0x80 != 0 {
                break;
            }
            self.bytes = rest;
        }
    }

    fn unsigned(&mut self) -> u64 {
        let mut value = 0u64;
        let mut shift = 0u32;
        while let Some(byte) = self.next() {
            value |= u64::from(byte & 63).checked_shl(shift).unwrap_or(0);
            shift += 6;
            if byte & 64 == 0 {
                break;
            }
        }
        value
    }

    fn signed(&mut self) -> i64 {
        let value = self.unsigned();
        let magnitude = (value >> 1) as i64;
        if value & 1 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lnotab_step_applies_from_its_address_on() {
        // 0: line 10, 6: line 11, 8: line 9.
        let table = [6, 1, 2, 0xfe];
        let line = |unit| position(LineTableFormat::Lnotab, &table, 10, unit).line;
        assert_eq!([line(0), line(2), line(3), line(4), line(400)], [10, 10, 11, 9, 9]);
    }

    #[test]
    fn a_range_without_a_line_has_line_zero_and_leaves_later_lines_unchanged() {
        // 0..4: line 10, 4..6: none, 6..8: line 12.
        let table = [4, 0, 2, 0x80, 2, 2];
        let line = |unit| position(LineTableFormat::Ranges, &table, 10, unit).line;
        assert_eq!([line(0), line(1), line(2), line(3), line(4)], [10, 10, 0, 12, 0]);
    }

    #[test]
    fn each_kind_of_location_entry_is_read() {
        let table = [
            0x80,
            0x21, // kind 0, one unit: line 10, column 2 (from 1: 3)
            0x80 | 11 << 3,
            4,
            9, // one line further, column 4 (5)
            0x80 | 13 << 3,
            3, // one line back (signed 3 = -1), no column
            0x80 | 14 << 3 | 1,
            4,
            0,
            8,
            9,              // two lines further, two units, column 7 (8)
            0x80 | 15 << 3, // none
        ];
        let line_and_column = |unit| {
            let position = position(LineTableFormat::Locations, &table, 10, unit);
            (position.line, position.column)
        };
        assert_eq!(line_and_column(0), (10, 3));
        assert_eq!(line_and_column(1), (11, 5));
        assert_eq!(line_and_column(2), (10, 0));
        assert_eq!(line_and_column(3), (12, 8));
        assert_eq!(line_and_column(4), (12, 8));
        assert_eq!(line_and_column(5), (0, 0));
        assert_eq!(line_and_column(6), (0, 0));
    }

    #[test]
    fn arbitrary_bytes_are_decoded_without_a_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for length in 0..400usize {
            let table: Vec<u8> = (0..length)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
            for format in [LineTableFormat::Lnotab, LineTableFormat::Ranges, LineTableFormat::Locations] {
                for unit in [0, 1, 7, 1000, u32::MAX] {
                    position(format, &table, u32::MAX, unit);
                }
            }
        }
    }
}
