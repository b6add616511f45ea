//! Recorded stacks for the tests of the walk: their shapes, the writer of a fixture, and the replay.

pub mod recorded_shape;
pub mod replay;
#[cfg(test)]
mod replay_tests;
#[cfg(feature = "record-stacks")]
mod writer;
