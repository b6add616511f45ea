//! pprof: one gzipped file of all profiles of a window, with a value type per profile type. A profile that counts periods is
//! written as `samples`/`count` and as its weight (`cpu`/`nanoseconds`, exact where the profile has exact values).
//!
//! The resource becomes comments (`service.name=…`), the span link the labels `trace_id` and `span_id`. A sample
//! with one timestamp has the numeric label `end_timestamp_ns`. The format has no field for several timestamps of a sample and
//! for frame types. Own code by configuration is a comment with its prefixes (`own_code=…`).

mod columns;
mod file;
pub mod names;

pub use columns::listed_sample_types;

use std::borrow::Cow;
use std::io::Write;

use flate2::write::GzEncoder;
use flate2::Compression;

use crate::ProfilesData;

/// The file's bytes, gzipped.
pub fn encode(data: &ProfilesData) -> Vec<u8> {
    gzipped(encode_uncompressed(data))
}

/// The bytes as gzip.
pub(super) fn gzipped(raw: Vec<u8>) -> Vec<u8> {
    // Level 1: the last few percent of size are not worth the host's CPU time.
    let mut gzip = GzEncoder::new(Vec::with_capacity(raw.len() / 3), Compression::fast());
    match gzip.write_all(&raw).and_then(|()| gzip.finish()) {
        Ok(bytes) => bytes,
        // Writing to a vector cannot fail. Readers accept the uncompressed form as well.
        Err(_) => raw,
    }
}

/// The file's bytes before compression.
pub fn encode_uncompressed(data: &ProfilesData) -> Vec<u8> {
    file::write(data, &|key| Some(Cow::Borrowed(key)))
}

/// As [`encode_uncompressed`], with other names of labels; a label without a name is omitted.
pub(super) fn encode_with_label_names(data: &ProfilesData, name: &dyn Fn(&str) -> Option<Cow<'_, str>>) -> Vec<u8> {
    file::write(data, name)
}
