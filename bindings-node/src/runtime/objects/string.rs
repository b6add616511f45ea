//! A string in V8's heap: its lines and its code units, read in chunks through guarded loads. Not here: the lookup by
//! representation (`HeapLayout`).

use super::copy;

const CHUNK_BYTES: usize = 16 << 10;
/// Strings up to this size are read without an allocation: most names, and short evaluated scripts.
const INLINE_BYTES: usize = 256;
const INITIAL_LINES: usize = 16;

/// A contiguous string in V8's heap.
#[derive(Clone, Copy)]
pub struct HeapString {
    pub(super) address: usize,
    pub units: usize,
    pub(super) is_one_byte: bool,
}

impl HeapString {
    /// Passes its bytes to `take` in chunks of whole code units; false when a chunk cannot be read.
    fn read(&self, take: &mut dyn FnMut(&[u8])) -> bool {
        let len = if self.is_one_byte { self.units } else { self.units * 2 };
        let (mut inline, mut allocated) = ([0; INLINE_BYTES], Vec::new());
        let chunk = match inline.get_mut(..len) {
            Some(inline) => inline,
            None => {
                allocated.resize(len.min(CHUNK_BYTES), 0);
                &mut allocated[..]
            }
        };
        (0..len).step_by(CHUNK_BYTES).all(|done| {
            let chunk = &mut chunk[..CHUNK_BYTES.min(len - done)];
            let read = copy(chunk, self.address + done);
            if read {
                take(chunk);
            }
            read
        })
    }

    /// As text, if it has at most `max_units` code units.
    pub fn to_text(self, max_units: usize) -> Option<Box<str>> {
        let mut bytes = Vec::new();
        let whole = self.units <= max_units && self.read(&mut |chunk| bytes.extend_from_slice(chunk));
        whole.then(|| {
            if self.is_one_byte {
                bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into()
            } else {
                String::from_utf16_lossy(&units(&bytes).collect::<Vec<u16>>()).into()
            }
        })
    }

    /// Offsets of the first code unit of each line.
    pub fn line_starts(&self) -> Option<Box<[u32]>> {
        let mut starts = Vec::with_capacity(INITIAL_LINES);
        starts.push(0);
        let mut ends_line = |offset: u32, unit: u16, before: &mut Option<u32>| {
            // CR LF is one line terminator.
            if unit == LINE_FEED && before.is_some_and(|before| before + 1 == offset) {
                starts.pop();
            }
            starts.push(offset + 1);
            if unit == CARRIAGE_RETURN {
                *before = Some(offset);
            }
        };
        let (mut offset, mut last_return) = (0u32, None);
        let whole = self.read(&mut |chunk| match self.is_one_byte {
            true => {
                for at in memchr::memchr2_iter(LINE_FEED as u8, CARRIAGE_RETURN as u8, chunk) {
                    ends_line(offset + at as u32, u16::from(chunk[at]), &mut last_return);
                }
                offset += chunk.len() as u32;
            }
            false => {
                for unit in units(chunk) {
                    if matches!(unit, LINE_FEED | CARRIAGE_RETURN | 0x2028 | 0x2029) {
                        ends_line(offset, unit, &mut last_return);
                    }
                    offset += 1;
                }
            }
        });
        whole.then(|| starts.into())
    }
}

const LINE_FEED: u16 = 10;
const CARRIAGE_RETURN: u16 = 13;

fn units(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(units: &[u16]) -> HeapString {
        HeapString { address: units.as_ptr() as usize, units: units.len(), is_one_byte: false }
    }

    #[test]
    fn every_line_terminator_of_the_language_starts_a_line() {
        let units: Vec<u16> = "a\nb\r\nc\rd\u{2028}e\u{2029}\r\r\n".encode_utf16().collect();
        assert_eq!(string(&units).line_starts().unwrap(), [0, 2, 5, 7, 9, 11, 12, 14].into());
        let long = "x\r\n".repeat(CHUNK_BYTES);
        let wide: Vec<u16> = long.encode_utf16().collect();
        let narrow = HeapString { address: long.as_ptr() as usize, units: long.len(), is_one_byte: true };
        for string in [string(&wide), narrow] {
            let starts = string.line_starts().unwrap();
            assert_eq!(starts.len(), CHUNK_BYTES + 1);
            assert!(starts.iter().enumerate().all(|(line, start)| *start as usize == line * 3), "across chunks too");
        }
    }

    #[test]
    fn a_string_is_read_completely_or_not_at_all() {
        let latin = [b'a', 0xe9, b'b'];
        let one_byte = HeapString { address: latin.as_ptr() as usize, units: 3, is_one_byte: true };
        assert_eq!(one_byte.to_text(3).as_deref(), Some("aéb"));
        assert_eq!(one_byte.to_text(2), None);
        assert_eq!(HeapString { address: 4097, ..one_byte }.to_text(3), None);
    }
}
