//! V8's source position tables: zigzag VLQ pairs of a step in the code and a step of a packed source position. Pure; the
//! bytes come from memory that may be anything.

use super::{Position, NOWHERE};

/// One entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub code_offset: u32,
    /// Offset in the text of the function that `inlining` names; `NOWHERE` when V8 has none.
    pub script_offset: u32,
    /// 0 is the function that the code belongs to; others count from 1 through the code's inlining positions.
    pub inlining: u16,
}

/// How a V8 writes its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// What the first step in the code counts from.
    first: i64,
    /// The lowest bit of a step is a mark of its own.
    has_mark: bool,
}

/// Every form there was: with marks since version 14.
pub const FORMS: [Form; 4] = [
    Form { first: -1, has_mark: false },
    Form { first: 0, has_mark: false },
    Form { first: -1, has_mark: true },
    Form { first: 0, has_mark: true },
];

impl Form {
    /// Decodes a table if it says exactly what V8 told of this code; that is how a table is known for one.
    pub fn decode_told(self, bytes: &[u8], told: &[Position]) -> Option<Vec<Entry>> {
        let entries = self.entries(bytes)?;
        let mut told = told.iter().copied().peekable();
        let mut before = None;
        for entry in &entries {
            let place = (entry.code_offset, entry.script_offset);
            if before.replace(place) == Some(place) {
                continue;
            }
            if told.next()? != place {
                return None;
            }
            // V8 tells of a statement twice.
            while told.next_if_eq(&place).is_some() {}
        }
        (told.next().is_none() && !entries.is_empty()).then_some(entries)
    }

    /// Decodes a table of code that has `len` bytes.
    pub fn decode(self, bytes: &[u8], len: usize) -> Option<Vec<Entry>> {
        let entries = self.entries(bytes)?;
        let inside = entries.last().is_some_and(|last| (last.code_offset as usize) < len);
        (inside && entries.is_sorted_by_key(|entry| entry.code_offset)).then_some(entries)
    }

    /// The places of byte code of `len` bytes, where nothing is inlined.
    pub fn positions(self, bytes: &[u8], len: usize) -> Option<Box<[Position]>> {
        let entries = self.decode(bytes, len)?;
        let own = entries.iter().all(|entry| entry.inlining == 0);
        own.then(|| entries.iter().map(|entry| (entry.code_offset, entry.script_offset)).collect())
    }

    fn entries(self, bytes: &[u8]) -> Option<Vec<Entry>> {
        let (mut code_offset, mut packed) = (self.first, 0i64);
        let mut entries = Vec::new();
        let mut left = bytes;
        while !left.is_empty() {
            let step = number(&mut left)?;
            // Its sign says whether a statement begins.
            let step = if step < 0 { !step } else { step };
            let step = if self.has_mark { step >> 1 } else { step };
            code_offset = code_offset.checked_add(step)?;
            packed = packed.checked_add(number(&mut left)?)?;
            // Before the code is the place of the function as a whole.
            if let (Some((script_offset, inlining)), 0..) = (unpack(packed), code_offset) {
                entries.push(Entry { code_offset: u32::try_from(code_offset).ok()?, script_offset, inlining });
            }
        }
        Some(entries)
    }
}

/// Script offset and inlining of a packed position; `None` for places outside JavaScript.
pub fn unpack(packed: i64) -> Option<(u32, u16)> {
    let packed = packed as u64;
    if packed & 1 == 1 {
        return None;
    }
    // Both are stored one higher.
    let script_offset = match (packed >> 1) & 0x3fff_ffff {
        0 => NOWHERE,
        offset => (offset - 1) as u32,
    };
    Some((script_offset, (packed >> 31) as u16))
}

fn number(left: &mut &[u8]) -> Option<i64> {
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

    fn put(out: &mut Vec<u8>, value: i64) {
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

    /// As V8 writes it; and what it tells of it.
    fn written(form: Form, entries: &[(Entry, bool)]) -> (Vec<u8>, Vec<Position>) {
        let (mut bytes, mut told, mut code, mut packed) = (Vec::new(), Vec::new(), form.first, 0i64);
        for (entry, is_statement) in entries {
            let step = entry.code_offset as i64 - code;
            let step = if form.has_mark { step << 1 | 1 } else { step };
            // Which sign means a statement changed over time.
            put(&mut bytes, if *is_statement != form.has_mark { step } else { !step });
            let now = ((entry.script_offset.wrapping_add(1) as i64) << 1) | ((entry.inlining as i64) << 31);
            put(&mut bytes, now - packed);
            (code, packed) = (entry.code_offset as i64, now);
            let times = if *is_statement { 2 } else { 1 };
            told.extend(std::iter::repeat_n((entry.code_offset, entry.script_offset), times));
        }
        (bytes, told)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_table_that_says_what_was_told_is_read(
            steps in proptest::collection::vec((0u32..400, 0u32..1 << 20, 0u16..40, any::<bool>()), 1..60),
            form in 0usize..4,
        ) {
            let mut code_offset = 0;
            let entries: Vec<(Entry, bool)> = steps.into_iter().map(|(step, script_offset, inlining, is_statement)| {
                code_offset += step;
                (Entry { code_offset, script_offset, inlining }, is_statement)
            }).collect();
            let (bytes, mut told) = written(FORMS[form], &entries);
            let expected: Vec<Entry> = entries.iter().map(|(entry, _)| *entry).collect();
            prop_assert_eq!(FORMS[form].decode_told(&bytes, &told), Some(expected.clone()));
            prop_assert_eq!(FORMS[form].decode(&bytes, code_offset as usize + 1), Some(expected));
            prop_assert_eq!(FORMS[form].decode(&bytes, code_offset as usize), None, "longer than the code");
            told[0].1 += 1;
            prop_assert_eq!(FORMS[form].decode_told(&bytes, &told), None, "another code's table");
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for form in FORMS {
                prop_assert!(form.decode_told(&bytes, &[]).is_none());
                let _ = form.decode(&bytes, 1000);
            }
        }
    }

    #[test]
    fn tables_that_v8_wrote_are_read() {
        let forms = |bytes: &[u8], told: &[Position]| {
            (0..4).filter(|form| FORMS[*form].decode_told(bytes, told).is_some()).collect::<Vec<_>>()
        };
        // Of byte code in version 10.2, of optimised code and of byte code in version 14.6.
        let old = [1, 168, 20, 2, 80, 6, 72, 4, 20, 5, 0, 10, 80, 7, 16];
        assert_eq!(forms(&old, &[(0, 669), (0, 669), (3, 687), (5, 692), (7, 692), (12, 712), (15, 716)]), [0]);
        let optimised = [50, 152, 11, 58, 64, 138, 1, 28, 62, 36, 106, 32, 134, 1, 31, 142, 1, 32, 38, 159, 1];
        let told = [(11, 357), (25, 373), (59, 380), (74, 389), (100, 397), (133, 389), (168, 397), (177, 357)];
        assert_eq!(forms(&optimised, &told), [2]);
        let byte_code = [2, 152, 11, 7, 24, 10, 40, 26, 28, 26, 36, 43, 32];
        assert_eq!(forms(&byte_code, &[(0, 363), (0, 363), (2, 373), (8, 380), (14, 389), (24, 397), (24, 397)]), [2]);
    }

    #[test]
    fn a_place_outside_of_javascript_is_passed_over() {
        let mut bytes = Vec::new();
        for value in [0, 10 << 1, 4, (21 << 1 | 1) - (10 << 1), 4, (31 << 1) - (21 << 1 | 1)] {
            put(&mut bytes, value);
        }
        let entries = FORMS[1].decode_told(&bytes, &[(0, 9), (8, 30)]).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.script_offset).collect::<Vec<_>>(), [9, 30]);
    }
}
