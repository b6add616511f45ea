//! Properties of the crate through its public API: round trips, merging, untrusted input, text forms.

mod comparison;
mod diagnosis;
mod diff_trees;
mod draws;
mod heap_peak;
mod hostile;
mod native_frames;
mod otlp;
mod pprof;
mod pprof_messages;
mod pyroscope;
mod queries;
mod random;
mod random_files;
mod round_trips;
mod snapshots;
mod span_time;
mod spans;
mod stacks;
