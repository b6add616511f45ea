//! The profile model of spanprof: typed tables, interning, encoders, decoders, checks and queries.
//!
//! Invariant: no unsafe code, no I/O, no clock, no threads. Time is an argument. Called by the facade's window and by the
//! command line.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod decode;
pub mod encode;
pub mod model;
pub mod query;
mod wire;

pub use model::*;
