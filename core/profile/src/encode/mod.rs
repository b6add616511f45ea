//! Encoders: OTLP, pprof, Pyroscope's push protocol, folded, flame graph, speedscope, SVG, text. Pure functions of a
//! [`crate::ProfilesData`] or of its stack tree.

mod compact;
pub mod flamegraph;
pub mod folded;
mod message_writer;
mod numbering;
pub mod otlp;
pub mod page;
pub mod pprof;
pub mod pyroscope;
pub mod speedscope;
pub mod svg;
pub mod text;
