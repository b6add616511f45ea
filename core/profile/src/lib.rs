//! Holds, transforms and encodes profiles: values in, bytes out; never knows a file, a socket, a clock or a thread: time is an
//! argument.
//!
//! Typed tables, interning, merging, redaction, and the encoders of OTLP, pprof, Pyroscope's push protocol and folded
//! stacks. Decoders are in `spanprof-read`, what people look at is in `spanprof-view`. Called by the engine, by the profiler's deliveries, by the reading crate and by the command line.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod code_origin;
mod demangle;
pub mod encode;
pub mod heap_peak;
pub mod kinds;
pub mod model;
pub mod redact;
pub mod transform;

pub use demangle::demangle;
pub use model::*;
