//! Encoders: OTLP, pprof, folded, flame graph. Pure functions of a [`crate::ProfilesData`].
