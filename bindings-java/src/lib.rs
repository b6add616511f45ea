//! The native half of the JAR: the library that `io.spanprof.Native` loads, and that is an agent of the VM by itself.
//!
//! Conversion only: JSON into the core's configuration, errors into texts, label sets and spans into words of a buffer. Not
//! here: defaults, limits and messages (the core), reading HotSpot ([`runtime`]), Java conveniences (`src/main/java`).

mod agent;
#[cfg(feature = "testing")]
mod conformance;
mod context_calls;
mod convert;
mod door;
mod host_log;
mod natives;
mod packed;
mod runtime;
