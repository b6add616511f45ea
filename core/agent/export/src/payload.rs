//! An encoded profile to be exported.

use std::fmt;

/// Splits a body into smaller bodies with the same profiles in total; `None` when it cannot be split.
pub type SplitFn = fn(&[u8]) -> Option<Vec<Vec<u8>>>;

/// An encoded profile, and the metadata that the exporter uses.
#[derive(Clone, Default)]
pub struct ExportPayload {
    /// For OTLP the protobuf request, not compressed; for a file the gzipped pprof (other bytes are gzipped on writing).
    pub body: Vec<u8>,
    /// First part of a file's name (`cpu`); `profile` when absent. Not used by OTLP.
    pub profile_type: Option<String>,
    /// Start of the window, milliseconds since 1970: second part of a file's name.
    pub time_unix_ms: u64,
    /// Samples inside, for the loss counters.
    pub samples: u64,
    /// Splits the body when it is too large for the receiver.
    pub split: Option<SplitFn>,
    /// JSON text that is written beside a file, as `<type>-<unix ms>.json`. Not used by OTLP.
    pub sidecar: Option<Vec<u8>>,
}

impl fmt::Debug for ExportPayload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body contains function names and labels; messages may show only its size.
        formatter
            .debug_struct("ExportPayload")
            .field("body_bytes", &self.body.len())
            .field("profile_type", &self.profile_type)
            .field("time_unix_ms", &self.time_unix_ms)
            .field("samples", &self.samples)
            .field("splits", &self.split.is_some())
            .finish()
    }
}
