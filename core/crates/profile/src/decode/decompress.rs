//! The front door of every decoder: gzip is opened, within the limit, and refused where it makes no sense.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::{DecodeError, Limits};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The bytes, decompressed if they were gzipped.
pub(super) fn open<'a>(what: &'static str, bytes: &'a [u8], limits: &Limits) -> Result<Cow<'a, [u8]>, DecodeError> {
    let refuse = |expected: String, got: &str| DecodeError { what, at: String::new(), expected, got: got.to_owned() };
    let at_most = format!("at most {} bytes, decompressed", limits.decompressed_bytes);
    if !bytes.starts_with(&GZIP) {
        return if bytes.len() > limits.decompressed_bytes {
            Err(refuse(at_most, &format!("{} bytes", bytes.len())))
        } else {
            Ok(Cow::Borrowed(bytes))
        };
    }
    // The capacity is a guess that never exceeds the limit; growth beyond it is the reader's, chunk by chunk.
    let mut opened = Vec::with_capacity(bytes.len().saturating_mul(4).min(limits.decompressed_bytes).min(4 << 20));
    let mut source = MultiGzDecoder::new(bytes).take(limits.decompressed_bytes as u64 + 1);
    if let Err(error) = source.read_to_end(&mut opened) {
        return Err(refuse("whole gzip data".to_owned(), &format!("{error} after {} bytes", opened.len())));
    }
    if opened.len() > limits.decompressed_bytes {
        return Err(refuse(at_most, "more"));
    }
    if opened.starts_with(&GZIP) {
        return Err(refuse("a profile within the gzip data".to_owned(), "gzip data again"));
    }
    Ok(Cow::Owned(opened))
}
