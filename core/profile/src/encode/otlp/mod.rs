//! OTLP: encodes an `ExportProfilesServiceRequest` (the same wire format as `ProfilesData`) and splits large ones. `metrics`
//! encodes the profiler's own metrics.
//!
//! CPU values are whole periods, as Pyroscope's dashboards expect (`samples`/`count`); the remainder is carried to the thread's
//! next sample. The model and pprof have the measured value beside it.

mod halve;
pub mod metrics;
mod request;
mod shape;
mod split;
mod used;

use crate::ProfilesData;

/// Maximum number of samples in one profile that every known receiver accepts.
pub const MAX_SAMPLES_PER_PROFILE: usize = 16_000;

/// A revision of the signal's development schema, which selects the encoder and the announced version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revision {
    /// The schema of opentelemetry-proto 1.10 and 1.11.
    #[default]
    One,
}

impl Revision {
    /// Name of the HTTP header, or in lower case of the gRPC metadata, that announces the revision.
    pub const HEADER: &'static str = "OTLP-Profiles-Development-Version";

    /// The header's value.
    pub const fn header_value(self) -> &'static str {
        match self {
            Self::One => "1",
        }
    }
}

/// The request, uncompressed. Omits unreferenced entries, profiles without samples, samples without a value, and
/// [`Profile::exact_type`](crate::Profile::exact_type), for which OTLP has no field: see
/// [`separate_exact_values`](crate::transform::separate_exact_values).
pub fn encode(data: &ProfilesData, revision: Revision) -> Vec<u8> {
    match revision {
        Revision::One => request::write(data),
    }
}

/// Whether any sample has a value. Samples of 0 are not written: CPU time below one period is in a later window.
pub fn has_values(data: &ProfilesData) -> bool {
    let mut samples = data.profiles().flat_map(|(_, profile)| &profile.samples);
    samples.any(|sample| shape::shape(sample) != shape::SampleShape::Nothing)
}

/// A request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRequest {
    /// The bytes, uncompressed.
    pub body: Vec<u8>,
    /// Number of samples.
    pub samples: usize,
}

/// Encodes into requests of at most `max_bytes` each, with at most [`MAX_SAMPLES_PER_PROFILE`] samples per profile. Lossless;
/// a request of one sample is not split further.
pub fn encode_split(data: ProfilesData, revision: Revision, max_bytes: usize) -> Vec<EncodedRequest> {
    split::encode_split(data, revision, max_bytes)
}

/// Splits an encoded request in two halves; `None` when it has fewer than two samples or is malformed. Only for bodies of
/// [`encode`]: references in other bytes are not checked.
pub fn split_encoded(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    halve::halves(body).map(|halves| halves.into_iter().map(|(body, _)| body).collect())
}
