//! A text in V8's memory: its lines and its units, read piece by piece through guarded loads. Found by the layout; not here:
//! what kind of object it is.

use super::copy;

const CHUNK_BYTES: usize = 16 << 10;
/// Texts up to here are read without asking for memory: most names, and scripts made from text.
const FEW_BYTES: usize = 256;
const FEW_LINES: usize = 16;

/// A text in V8's memory, in one piece.
#[derive(Clone, Copy)]
pub struct Text {
    pub(super) address: usize,
    pub units: usize,
    pub(super) is_one_byte: bool,
}

impl Text {
    /// Hands out its bytes, chunk by chunk, none of which ends within a unit; false when it cannot be read to the end.
    fn read(&self, take: &mut dyn FnMut(&[u8])) -> bool {
        let len = if self.is_one_byte { self.units } else { self.units * 2 };
        let (mut few, mut many) = ([0; FEW_BYTES], Vec::new());
        let chunk = match few.get_mut(..len) {
            Some(few) => few,
            None => {
                many.resize(len.min(CHUNK_BYTES), 0);
                &mut many[..]
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

    /// As text, if it has at most so many units.
    pub fn to_text(self, most_units: usize) -> Option<Box<str>> {
        let mut bytes = Vec::new();
        let whole = self.units <= most_units && self.read(&mut |chunk| bytes.extend_from_slice(chunk));
        whole.then(|| match self.is_one_byte {
            true => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
            false => String::from_utf16_lossy(&units(&bytes).collect::<Vec<u16>>()).into(),
        })
    }

    /// The offsets of the first units of its lines.
    pub fn line_starts(&self) -> Option<Box<[u32]>> {
        let mut starts = Vec::with_capacity(FEW_LINES);
        starts.push(0);
        let mut ends_line = |offset: u32, unit: u16, before: &mut Option<u32>| {
            // One end of two units.
            if unit == LINE_FEED && before.is_some_and(|before| before + 1 == offset) {
                starts.pop();
            }
            starts.push(offset + 1);
            if unit == RETURN {
                *before = Some(offset);
            }
        };
        let (mut offset, mut last_return) = (0u32, None);
        let whole = self.read(&mut |chunk| match self.is_one_byte {
            true => {
                for at in memchr::memchr2_iter(LINE_FEED as u8, RETURN as u8, chunk) {
                    ends_line(offset + at as u32, u16::from(chunk[at]), &mut last_return);
                }
                offset += chunk.len() as u32;
            }
            false => {
                for unit in units(chunk) {
                    if matches!(unit, LINE_FEED | RETURN | 0x2028 | 0x2029) {
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
const RETURN: u16 = 13;

fn units(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(units: &[u16]) -> Text {
        Text { address: units.as_ptr() as usize, units: units.len(), is_one_byte: false }
    }

    #[test]
    fn lines_begin_after_every_terminator_of_the_language() {
        let units: Vec<u16> = "a\nb\r\nc\rd\u{2028}e\u{2029}\r\r\n".encode_utf16().collect();
        assert_eq!(text(&units).line_starts().unwrap(), [0, 2, 5, 7, 9, 11, 12, 14].into());
        let long = "x\r\n".repeat(CHUNK_BYTES);
        let wide: Vec<u16> = long.encode_utf16().collect();
        let narrow = Text { address: long.as_ptr() as usize, units: long.len(), is_one_byte: true };
        for text in [text(&wide), narrow] {
            let starts = text.line_starts().unwrap();
            assert_eq!(starts.len(), CHUNK_BYTES + 1);
            assert!(starts.iter().enumerate().all(|(line, start)| *start as usize == line * 3), "over chunks too");
        }
    }

    #[test]
    fn a_text_is_read_whole_or_not_at_all() {
        let latin = [b'a', 0xe9, b'b'];
        let one_byte = Text { address: latin.as_ptr() as usize, units: 3, is_one_byte: true };
        assert_eq!(one_byte.to_text(3).as_deref(), Some("aéb"));
        assert_eq!(one_byte.to_text(2), None);
        assert_eq!(Text { address: 4097, ..one_byte }.to_text(3), None);
    }
}
