//! The reading side of spanprof: decoders, checks and queries of profiles, and OTLP/JSON, which shares the messages of the
//! decoder. Input is hostile until it is decoded.
//!
//! Invariant: no unsafe code, no I/O, no clock, no threads. Called by the command line, the live suites and tests. The
//! profiler itself does not link it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod decode;
pub mod diagnosis;
pub mod otlp_json;
pub mod query;
mod wire;
