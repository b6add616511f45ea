//! Decompression of gzip input within the limit, shared by all decoders. Rejects nested gzip.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::{DecodeError, DecodeLimits};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The bytes, decompressed if they are gzipped.
pub(super) fn decompress<'a>(
    what: &'static str,
    bytes: &'a [u8],
    limits: &DecodeLimits,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    let decode_error =
        |expected: String, got: &str| DecodeError { what, at: String::new(), expected, got: got.to_owned() };
    let at_most = format!("at most {} bytes, decompressed", limits.decompressed_bytes);
    if !bytes.starts_with(&GZIP) {
        return if bytes.len() > limits.decompressed_bytes {
            Err(decode_error(at_most, &format!("{} bytes", bytes.len())))
        } else {
            Ok(Cow::Borrowed(bytes))
        };
    }
    // The initial capacity is an estimate within the limit; `read_to_end` grows it in chunks.
    let mut decompressed =
        Vec::with_capacity(bytes.len().saturating_mul(4).min(limits.decompressed_bytes).min(4 << 20));
    let mut source = MultiGzDecoder::new(bytes).take(limits.decompressed_bytes as u64 + 1);
    if let Err(error) = source.read_to_end(&mut decompressed) {
        return Err(decode_error("whole gzip data".to_owned(), &format!("{error} after {} bytes", decompressed.len())));
    }
    if decompressed.len() > limits.decompressed_bytes {
        return Err(decode_error(at_most, "more"));
    }
    if decompressed.starts_with(&GZIP) {
        return Err(decode_error("a profile within the gzip data".to_owned(), "gzip data again"));
    }
    Ok(Cow::Owned(decompressed))
}
