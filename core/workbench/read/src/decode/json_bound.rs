//! An upper estimate of the memory of parsed JSON from its punctuation, before it is parsed.

const OBJECT_BYTES: usize = 300;
const LIST_BYTES: usize = 48;
const ELEMENT_BYTES: usize = 16;
const TEXT_BYTES: usize = 100;

/// The estimate. Quoted text is skipped, so braces in names are not counted.
pub(super) fn memory_bytes(text: &[u8]) -> usize {
    let mut bytes = text.len();
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes += match byte {
            b'{' => OBJECT_BYTES,
            b'[' => LIST_BYTES,
            b',' => ELEMENT_BYTES,
            b'"' => {
                skip_string(&mut rest);
                // A string before a colon is a member name, not a value.
                if rest.as_slice().first() == Some(&b':') {
                    0
                } else {
                    TEXT_BYTES
                }
            }
            _ => 0,
        };
    }
    bytes
}

/// Skips a string after its first quote, with the last one.
fn skip_string(rest: &mut std::slice::Iter<'_, u8>) {
    while let Some(within) = rest.next() {
        match within {
            b'\\' => drop(rest.next()),
            b'"' => break,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_costs_and_quoted_punctuation_does_not() {
        assert_eq!(memory_bytes(b"[{},{}]"), 7 + LIST_BYTES + 2 * OBJECT_BYTES + ELEMENT_BYTES);
        assert_eq!(memory_bytes(br#"{"a":"{[,\"{"}"#), 14 + OBJECT_BYTES + TEXT_BYTES);
        assert_eq!(memory_bytes(br#""unfinished \"#), 13 + TEXT_BYTES);
    }
}
