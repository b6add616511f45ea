//! An upper estimate of what a JSON text becomes in memory, from its punctuation alone, before it is parsed.

const OBJECT_BYTES: usize = 300;
const LIST_BYTES: usize = 48;
const ELEMENT_BYTES: usize = 16;
const TEXT_BYTES: usize = 100;

/// The estimate. Text within quotes is passed over, so braces in names cost nothing.
pub(super) fn memory_bytes(text: &[u8]) -> usize {
    let mut bytes = text.len();
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes += match byte {
            b'{' => OBJECT_BYTES,
            b'[' => LIST_BYTES,
            b',' => ELEMENT_BYTES,
            b'"' => {
                while let Some(within) = rest.next() {
                    match within {
                        b'\\' => drop(rest.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
                // A name before a colon is no value.
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
