//! The one switch between the real atomics and those of the model checker. Not a wrapper: names only.
//! Everything shared between threads in this crate takes its atomics from here.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
