//! The two wire formats: OTLP and pprof messages, a bounded scan of every input before it is decoded, and a writer without
//! intermediate messages.
//!
//! Called by the encoders, the decoders and the checks of this crate.

pub(crate) mod json;
pub(crate) mod otlp;
pub(crate) mod pprof;
pub(crate) mod pprof_names;
pub(crate) mod scan;
pub(crate) mod schema;
pub(crate) mod write;
