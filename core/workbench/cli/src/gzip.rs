//! Compression of profiles.

use std::io::Read;

/// Compresses at the fastest level: windows are written more often than read.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 3 + 64);
    let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::fast());
    // Memory to memory: no error is possible.
    let _ = encoder.read_to_end(&mut out);
    out
}
