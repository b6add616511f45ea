//! Recorded stacks for the tests of the walk: their shapes, the writer of a fixture, and the replay.

pub mod recorded_shape;
pub mod replay;
// The recordings are from x86-64, where the walk also reads instructions.
#[cfg(all(test, target_arch = "x86_64"))]
mod replay_tests;
#[cfg(feature = "record-stacks")]
mod writer;
