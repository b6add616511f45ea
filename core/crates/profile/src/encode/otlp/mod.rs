//! OTLP: the bytes of an `ExportProfilesServiceRequest` (the same wire as `ProfilesData`), and how a big one is split.

mod request;
mod shape;
mod split;
mod used;

use crate::ProfilesData;

/// Most samples of one profile that every known receiver takes.
pub const MAX_SAMPLES_PER_PROFILE: usize = 16_000;

/// A revision of the signal's development schema: the encoder and the version it announces belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revision {
    /// The schema of opentelemetry-proto 1.10 and 1.11.
    #[default]
    One,
}

impl Revision {
    /// Name of the header (HTTP) or, in lower case, of the metadata (gRPC) that announces the revision.
    pub const HEADER: &'static str = "OTLP-Profiles-Development-Version";

    /// The header's value.
    pub const fn header_value(self) -> &'static str {
        match self {
            Self::One => "1",
        }
    }
}

/// The request, uncompressed. Written are only entries that a sample refers to, profiles that have a sample, and samples
/// that have a value; [`Profile::exact_type`](crate::Profile::exact_type) has no place on this wire.
pub fn encode(data: &ProfilesData, revision: Revision) -> Vec<u8> {
    match revision {
        Revision::One => request::write(data),
    }
}

/// Parts that each encode to at most `max_bytes` with at most [`MAX_SAMPLES_PER_PROFILE`] samples per profile. Nothing is
/// lost; a part of one sample is not split further.
pub fn split(data: ProfilesData, max_bytes: usize) -> Vec<ProfilesData> {
    split::split(data, max_bytes)
}

/// [`split`] and [`encode`] in one: the bodies to send.
pub fn encode_split(data: ProfilesData, revision: Revision, max_bytes: usize) -> Vec<Vec<u8>> {
    split::encode_split(data, revision, max_bytes)
}

/// Two halves of an encoded request that a receiver found too large; `None` when it holds one sample or cannot be read.
/// For bodies this encoder made: it trusts their size.
pub fn split_encoded(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    split::split_encoded(body)
}
