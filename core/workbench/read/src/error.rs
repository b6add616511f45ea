//! The error type of all decoders: format, path, expected and actual value.

use std::fmt;

/// A decoding failure: the format, the path of the field, the expected and the actual value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The format: `OTLP profiles`, `pprof profile`, `gzip`.
    pub what: &'static str,
    /// Path of the field, e.g. `dictionary.stack_table[3].location_indices[0]`; "" for the whole input.
    pub at: String,
    /// Expected value.
    pub expected: String,
    /// Actual value.
    pub got: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, at, expected, got } = self;
        write!(out, "cannot read {what}")?;
        if !at.is_empty() {
            write!(out, " at {at}")?;
        }
        write!(out, ": expected {expected}, got {got}")
    }
}

impl std::error::Error for DecodeError {}
