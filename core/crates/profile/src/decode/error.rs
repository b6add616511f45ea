//! The one error of all decoders: what, where, expected and got.

use std::fmt;

/// Why bytes were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What was read: `OTLP profiles`, `pprof profile`, `gzip`.
    pub what: &'static str,
    /// Where in it, e.g. `dictionary.stack_table[3].location_indices[0]`; "" for the whole.
    pub at: String,
    /// What was expected there.
    pub expected: String,
    /// What was there.
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
