//! The ring of samples between handlers and the drain thread.

pub mod entry;
pub mod inbox;
#[cfg(all(test, not(loom)))]
mod ring_tests;
pub mod sample;
pub mod sample_ring;
pub mod synthetic_frame;
