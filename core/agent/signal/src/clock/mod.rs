//! A tick: the handler of the clocks' signal, and what it reads and counts.

pub mod counters;
pub mod handler;
pub mod probe;
pub mod restart;
pub mod signal_claim;
