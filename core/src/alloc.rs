//! The global allocator for heap profiles of Rust programs.

pub use crate::native::allocator_hook::Profiled;
