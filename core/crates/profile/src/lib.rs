//! The profile model of spanprof: typed tables, interning, transformations and encoders. Reading is in `spanprof-read`.
//!
//! Invariant: no unsafe code, no I/O, no clock, no threads. Time is an argument. Called by the facade's window and delivery, by
//! the reading crate and by the command line.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod encode;
pub mod heap_peak;
pub mod model;
pub mod redact;
pub mod transform;

pub use model::*;
