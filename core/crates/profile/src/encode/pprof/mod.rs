//! pprof: one gzipped file of all profiles that share a window, each profile type a value type. What counts periods is
//! written as `samples`/`count` and as what was measured (`cpu`/`nanoseconds`, exact where the profile has it).
//!
//! The resource goes into comments (`service.name=…`), the link into the labels `trace_id` and `span_id`. Timestamps of
//! single samples and frame types have no place in this format.

mod columns;
mod file;

use std::io::Write;

use flate2::write::GzEncoder;
use flate2::Compression;

use crate::ProfilesData;

/// The file's bytes, gzipped.
pub fn encode(data: &ProfilesData) -> Vec<u8> {
    let raw = encode_uncompressed(data);
    // The fastest level: files are small beside what a host would pay for the last few percent.
    let mut gzip = GzEncoder::new(Vec::with_capacity(raw.len() / 3), Compression::fast());
    match gzip.write_all(&raw).and_then(|()| gzip.finish()) {
        Ok(bytes) => bytes,
        // A vector takes every write. Readers take the uncompressed form as well.
        Err(_) => raw,
    }
}

/// The file's bytes before compression.
pub fn encode_uncompressed(data: &ProfilesData) -> Vec<u8> {
    file::write(data)
}
