//! Laws of the crate, through its public face: round trips, merging, hostile input, text forms.

mod hostile;
mod otlp;
mod pprof;
mod queries;
mod random;
mod snapshots;
