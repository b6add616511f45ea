//! The HTTP listener of pulls.

pub mod listener;
pub mod message;
