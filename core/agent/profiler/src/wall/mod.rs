//! The wall sampler: observes threads at a rate, whether they run or wait.

mod live_threads;
pub mod off_cpu;
pub mod pace;
pub mod repeats;
pub mod sampler;
pub mod thread;
pub mod torn_stack;

/// Threads walked per tick; with more threads, a random subset represents all.
pub(crate) const MAX_THREADS: usize = 64;
