//! Signals, and the slot of each thread that receives them: who handles a signal, which clock a thread has.

pub mod arm;
pub mod forward;
pub(crate) mod mapped_stack;
pub mod overflow;
pub mod slot;
pub mod slot_clock;
pub mod slot_table;
#[cfg(all(test, not(loom)))]
mod slot_tests;
