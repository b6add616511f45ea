//! The native library of the JAR, loaded by `io.spanprof.Native`; also a native agent of the VM (`-agentpath`).
//!
//! Conversion only: JSON into the core's configuration, errors into strings, label sets and span links into words of a
//! buffer. Not here: defaults, limits and messages (the core), access to HotSpot (`runtime`), the Java API
//! (`src/main/java`).

mod agent;
#[cfg(feature = "testing")]
mod conformance;
mod context_calls;
mod convert;
mod entry_points;
mod host_log;
mod natives;
mod packed;
mod runtime;
