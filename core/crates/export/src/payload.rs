//! One encoded profile on its way out.

use std::fmt;

/// Cuts a body into smaller bodies that mean the same together; `None` when it cannot be cut.
pub type SplitFn = fn(&[u8]) -> Option<Vec<Vec<u8>>>;

/// What the facade hands over: bytes, and the little the exporter must know about them.
#[derive(Clone, Default)]
pub struct Payload {
    /// For OTLP the protobuf request, not compressed; for a file the gzipped pprof (other bytes are gzipped on writing).
    pub body: Vec<u8>,
    /// First part of a file's name (`cpu`); `profile` when absent. Not used by OTLP.
    pub profile_type: Option<String>,
    /// Start of the window, milliseconds since 1970: second part of a file's name.
    pub time_unix_ms: u64,
    /// Samples inside, so that a loss can be told in samples.
    pub samples: u64,
    /// How to cut the body when the receiver finds it too large.
    pub split: Option<SplitFn>,
}

impl fmt::Debug for Payload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body holds function names and labels: its size is all a message may show.
        formatter
            .debug_struct("Payload")
            .field("body_bytes", &self.body.len())
            .field("profile_type", &self.profile_type)
            .field("time_unix_ms", &self.time_unix_ms)
            .field("samples", &self.samples)
            .field("splits", &self.split.is_some())
            .finish()
    }
}
