//! Encoders: OTLP, pprof, folded, flame graph, text. Pure functions of a [`crate::ProfilesData`] or of its stack tree.

pub mod flamegraph;
pub mod folded;
mod message_writer;
mod numbering;
pub mod otlp;
pub mod pprof;
pub mod text;
