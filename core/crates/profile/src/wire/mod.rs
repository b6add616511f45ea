//! The two wire forms as they are: OTLP and pprof messages, a bounded scan that every input passes before it is decoded,
//! and a writer without intermediate messages. Knows numbering and shapes, not meaning.
//!
//! Called by the encoders, the decoders and the checks; nobody outside this crate sees it.

pub(crate) mod json;
pub(crate) mod otlp;
pub(crate) mod pprof;
pub(crate) mod pprof_names;
pub(crate) mod scan;
pub(crate) mod schema;
pub(crate) mod write;

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
