//! Encoders: OTLP, pprof, folded, flame graph, text. Pure functions of a [`crate::ProfilesData`] or of what a query made
//! of one.

pub mod flamegraph;
pub mod folded;
mod order;
pub mod otlp;
pub mod pprof;
pub mod text;
