//! The wire formats: messages of OTLP and pprof, and a bounded scan of every input before it is decoded.
//!
//! Called by the decoders and the checks of this crate.

pub(crate) mod json;
pub(crate) mod messages;
pub(crate) mod otlp;
pub(crate) mod pprof;
pub(crate) mod scan;
