//! The drain thread: reads the ring, closes windows, applies changes, watches the overhead.

pub mod drain_thread;
pub mod engine_settings;
pub mod heap_peak;
pub mod overhead;
#[cfg(test)]
mod overhead_tests;
pub mod tick_check;
