//! Compression of profiles. Pure.

use std::io::Write;

use flate2::write::GzEncoder;
use flate2::Compression;

/// The bytes as gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Level 1: the last few percent of size are not worth the CPU time.
    let mut gzip = GzEncoder::new(Vec::with_capacity(bytes.len() / 3 + 64), Compression::fast());
    match gzip.write_all(bytes).and_then(|()| gzip.finish()) {
        Ok(gzipped) => gzipped,
        // Writing to a vector cannot fail. Readers accept the uncompressed form as well.
        Err(_) => bytes.to_vec(),
    }
}
