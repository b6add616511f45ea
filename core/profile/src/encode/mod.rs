//! Wire encoders: OTLP, pprof, Pyroscope's push protocol, folded stacks, text. Pure functions of a [`crate::ProfilesData`] or of
//! its stack tree.

pub mod folded;
mod gzip;
mod message_writer;
mod numbering;
pub mod otlp;
pub mod pprof;
pub mod pyroscope;
pub mod text;

pub use gzip::gzip;
