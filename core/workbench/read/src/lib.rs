//! Decodes, checks and queries profiles: bytes in, answers out; never knows a file, a socket, a clock or a thread, and never trusts
//! its input before it is decoded.
//!
//! OTLP/JSON is written here too, because it shares the messages of the decoder. Called by the command line, the live suites and
//! tests. The profiler itself does not link it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod decode;
pub mod diagnosis;
mod error;
mod limits;
pub mod otlp_json;
pub mod query;
mod wire;
