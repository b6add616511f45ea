//! Encoders: OTLP, pprof, folded, flame graph, text. Pure functions of a [`crate::ProfilesData`] or of a query result.

pub mod flamegraph;
pub mod folded;
mod numbering;
pub mod otlp;
pub mod pprof;
pub mod text;
