//! The global allocator for heap profiles of Rust programs.

pub use crate::runtime::allocator_hook::Profiled;
