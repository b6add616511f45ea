//! The profile model of spanprof: typed tables, interning, encoders and decoders. Values in, bytes out.
//!
//! Law: no unsafe, no I/O, no clock, no threads. Time enters as an argument. Called by the facade's window and by the
//! command line; knows neither the ring nor the network.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod decode;
pub mod encode;
pub mod model;
pub mod query;
mod wire;

pub use model::*;
