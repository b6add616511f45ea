//! The two wire formats: OTLP and pprof messages, a bounded scan of every input before it is decoded, and a writer without
//! intermediate messages.
//!
//! Called by the encoders, the decoders and the checks of this crate.

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
