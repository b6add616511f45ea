//! V8's source position tables: pairs of a code offset delta and a delta of the packed source position, as zigzag VLQ
//! (src/codegen/source-position-table.cc). Pure; the bytes come from unverified memory.

use super::{Position, NO_POSITION};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionTableEntry {
    pub code_offset: u32,
    /// Offset in the source of the function of `inlining`; `NO_POSITION` when V8 has none.
    pub script_offset: u32,
    /// 0 for the function that the code belongs to, otherwise the index in the code's inlining positions, from 1.
    pub inlining: u16,
}

/// The variants of V8's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEncoding {
    /// Start value of the code offset.
    first: i8,
    /// The lowest bit of a code offset delta is a flag.
    has_flag: bool,
}

/// All known encodings; with the flag since version 14.
pub const TABLE_ENCODINGS: [TableEncoding; 4] = [
    TableEncoding { first: -1, has_flag: false },
    TableEncoding { first: 0, has_flag: false },
    TableEncoding { first: -1, has_flag: true },
    TableEncoding { first: 0, has_flag: true },
];

impl TableEncoding {
    /// Decodes a table if it matches exactly the positions that V8 reported of this code, which identifies a table.
    pub fn decode_matching(self, bytes: &[u8], reported: &[Position]) -> Option<Vec<PositionTableEntry>> {
        let entries = self.entries(bytes)?;
        let mut reported = reported.iter().copied().peekable();
        let mut before = None;
        for entry in &entries {
            let position = (entry.code_offset, entry.script_offset);
            if before.replace(position) == Some(position) {
                continue;
            }
            if reported.next()? != position {
                return None;
            }
            // V8 reports a statement twice.
            while reported.next_if_eq(&position).is_some() {}
        }
        (reported.next().is_none() && !entries.is_empty()).then_some(entries)
    }

    /// Decodes a table of code that has `len` bytes.
    pub fn decode(self, bytes: &[u8], len: usize) -> Option<Vec<PositionTableEntry>> {
        let entries = self.entries(bytes)?;
        let inside = entries.last().is_some_and(|last| (last.code_offset as usize) < len);
        (inside && entries.is_sorted_by_key(|entry| entry.code_offset)).then_some(entries)
    }

    /// The positions of bytecode of `len` bytes, which has no inlined functions.
    pub fn positions(self, bytes: &[u8], len: usize) -> Option<Box<[Position]>> {
        let entries = self.decode(bytes, len)?;
        let own = entries.iter().all(|entry| entry.inlining == 0);
        own.then(|| entries.iter().map(|entry| (entry.code_offset, entry.script_offset)).collect())
    }

    fn entries(self, bytes: &[u8]) -> Option<Vec<PositionTableEntry>> {
        let (mut code_offset, mut packed) = (i64::from(self.first), 0i64);
        let mut entries = Vec::new();
        let mut left = bytes;
        while !left.is_empty() {
            let delta = read_vlq(&mut left)?;
            // The sign distinguishes statements from expressions.
            let delta = if delta < 0 { !delta } else { delta };
            let delta = if self.has_flag { delta >> 1 } else { delta };
            code_offset = code_offset.checked_add(delta)?;
            packed = packed.checked_add(read_vlq(&mut left)?)?;
            // A position before the first instruction belongs to the function as a whole.
            if let (Some((script_offset, inlining)), 0..) = (unpack(packed), code_offset) {
                entries.push(PositionTableEntry {
                    code_offset: u32::try_from(code_offset).ok()?,
                    script_offset,
                    inlining,
                });
            }
        }
        Some(entries)
    }
}

/// Script offset and inlining id of a packed position; `None` for positions outside JavaScript.
pub fn unpack(packed: i64) -> Option<(u32, u16)> {
    let packed = packed as u64;
    if packed & 1 == 1 {
        return None;
    }
    // Both are stored plus one.
    let script_offset = match (packed >> 1) & 0x3fff_ffff {
        0 => NO_POSITION,
        offset => (offset - 1) as u32,
    };
    Some((script_offset, (packed >> 31) as u16))
}

fn read_vlq(left: &mut &[u8]) -> Option<i64> {
    let (mut bits, mut shift) = (0u64, 0);
    loop {
        let (byte, rest) = left.split_first()?;
        *left = rest;
        bits |= ((byte & 0x7f) as u64).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((bits >> 1) as i64 ^ -((bits & 1) as i64));
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write_vlq(out: &mut Vec<u8>, value: i64) {
        let mut bits = ((value << 1) ^ (value >> 63)) as u64;
        loop {
            let more = bits > 0x7f;
            out.push((bits & 0x7f) as u8 | if more { 0x80 } else { 0 });
            bits >>= 7;
            if !more {
                break;
            }
        }
    }

    /// A table as V8 writes it, and the positions that it reports.
    fn encoded(encoding: TableEncoding, entries: &[(PositionTableEntry, bool)]) -> (Vec<u8>, Vec<Position>) {
        let (mut bytes, mut reported, mut code, mut packed) = (Vec::new(), Vec::new(), i64::from(encoding.first), 0i64);
        for (entry, is_statement) in entries {
            let delta = entry.code_offset as i64 - code;
            let delta = if encoding.has_flag { delta << 1 | 1 } else { delta };
            // The meaning of the sign changed between versions.
            write_vlq(&mut bytes, if *is_statement != encoding.has_flag { delta } else { !delta });
            let now = ((entry.script_offset.wrapping_add(1) as i64) << 1) | ((entry.inlining as i64) << 31);
            write_vlq(&mut bytes, now - packed);
            (code, packed) = (entry.code_offset as i64, now);
            let times = if *is_statement { 2 } else { 1 };
            reported.extend(std::iter::repeat_n((entry.code_offset, entry.script_offset), times));
        }
        (bytes, reported)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_table_that_matches_the_reported_positions_is_decoded(
            deltas in proptest::collection::vec((0u32..400, 0u32..1 << 20, 0u16..40, any::<bool>()), 1..60),
            encoding in 0usize..4,
        ) {
            let mut code_offset = 0;
            let entries: Vec<(PositionTableEntry, bool)> = deltas.into_iter().map(|(delta, script_offset, inlining, is_statement)| {
                code_offset += delta;
                (PositionTableEntry { code_offset, script_offset, inlining }, is_statement)
            }).collect();
            let (bytes, mut reported) = encoded(TABLE_ENCODINGS[encoding], &entries);
            let expected: Vec<PositionTableEntry> = entries.iter().map(|(entry, _)| *entry).collect();
            prop_assert_eq!(TABLE_ENCODINGS[encoding].decode_matching(&bytes, &reported), Some(expected.clone()));
            prop_assert_eq!(TABLE_ENCODINGS[encoding].decode(&bytes, code_offset as usize + 1), Some(expected));
            prop_assert_eq!(TABLE_ENCODINGS[encoding].decode(&bytes, code_offset as usize), None, "longer than the code");
            reported[0].1 += 1;
            prop_assert_eq!(TABLE_ENCODINGS[encoding].decode_matching(&bytes, &reported), None, "another code's table");
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for encoding in TABLE_ENCODINGS {
                prop_assert!(encoding.decode_matching(&bytes, &[]).is_none());
                let _ = encoding.decode(&bytes, 1000);
            }
        }
    }

    #[test]
    fn tables_that_v8_wrote_are_read() {
        let encodings = |bytes: &[u8], reported: &[Position]| {
            (0..4)
                .filter(|encoding| TABLE_ENCODINGS[*encoding].decode_matching(bytes, reported).is_some())
                .collect::<Vec<_>>()
        };
        // Bytecode of version 10.2, optimized code and bytecode of version 14.6.
        let old = [1, 168, 20, 2, 80, 6, 72, 4, 20, 5, 0, 10, 80, 7, 16];
        assert_eq!(encodings(&old, &[(0, 669), (0, 669), (3, 687), (5, 692), (7, 692), (12, 712), (15, 716)]), [0]);
        let optimized = [50, 152, 11, 58, 64, 138, 1, 28, 62, 36, 106, 32, 134, 1, 31, 142, 1, 32, 38, 159, 1];
        let reported = [(11, 357), (25, 373), (59, 380), (74, 389), (100, 397), (133, 389), (168, 397), (177, 357)];
        assert_eq!(encodings(&optimized, &reported), [2]);
        let bytecode = [2, 152, 11, 7, 24, 10, 40, 26, 28, 26, 36, 43, 32];
        assert_eq!(
            encodings(&bytecode, &[(0, 363), (0, 363), (2, 373), (8, 380), (14, 389), (24, 397), (24, 397)]),
            [2]
        );
    }

    #[test]
    fn a_position_outside_javascript_is_skipped() {
        let mut bytes = Vec::new();
        for value in [0, 10 << 1, 4, (21 << 1 | 1) - (10 << 1), 4, (31 << 1) - (21 << 1 | 1)] {
            write_vlq(&mut bytes, value);
        }
        let entries = TABLE_ENCODINGS[1].decode_matching(&bytes, &[(0, 9), (8, 30)]).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.script_offset).collect::<Vec<_>>(), [9, 30]);
    }
}
