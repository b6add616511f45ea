//! The global allocator for heap profiles of Rust programs. The implementation is in `sys`, because it is unsafe.

pub use crate::sys::Profiled;
