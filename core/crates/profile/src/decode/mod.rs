//! Decoders for OTLP and pprof, with limits on bytes, counts and indices.
