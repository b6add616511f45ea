//! The CPU clocks of all threads.

#[cfg(test)]
mod blocked_signal_tests;
pub mod clock_choice;
pub mod clock_probe;
pub mod clock_snapshot;
pub mod clock_state;
pub mod clock_types;
#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod fork_tests;
#[cfg(test)]
pub(crate) mod live_tests;
pub mod perf;
#[cfg(test)]
mod perf_tests;
pub mod registry;
pub mod scan_schedule;
#[cfg(test)]
mod scan_tests;
#[cfg(test)]
mod signal_claim_tests;
pub mod thread_clocks;
pub mod thread_start;
