//! Recorded stacks for the tests of the walk: the writer of a fixture, and the replay.

pub mod replay;
#[cfg(all(test, target_arch = "x86_64"))]
mod replay_tests;
#[cfg(feature = "record-stacks")]
pub mod writer;
