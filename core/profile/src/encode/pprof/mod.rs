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

use super::gzip;
use crate::ProfilesData;

/// The file's bytes, gzipped.
pub fn encode(data: &ProfilesData) -> Vec<u8> {
    gzip(&encode_uncompressed(data))
}

/// The file's bytes before compression.
pub fn encode_uncompressed(data: &ProfilesData) -> Vec<u8> {
    file::write(data, &|key| Some(Cow::Borrowed(key)))
}

/// As [`encode_uncompressed`], with other names of labels; a label without a name is omitted.
pub(super) fn encode_with_label_names(data: &ProfilesData, name: &dyn Fn(&str) -> Option<Cow<'_, str>>) -> Vec<u8> {
    file::write(data, name)
}
