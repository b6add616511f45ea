//! Runs inside signal handlers, with the lock-free structures that handlers share with normal threads; never allocates, locks,
//! formats, panics, or is the first to access thread-local storage.
//!
//! Not here: timers and threads (`spanprof-os`), names (`spanprof-aggregate`), languages (the bindings).
#![cfg_attr(not(any(test, loom)), no_std)]

mod address_filter;
pub mod arm;
mod atomics;
pub mod buffer_pool;
mod capture;
mod context;
pub mod counters;
mod drop_reason;
mod entry;
pub mod exchange;
mod exponential_distance;
pub mod forward;
pub mod futex;
mod generation;
pub mod guarded;
pub mod handler;
#[cfg(not(loom))]
pub mod heap;
mod inbox;
mod live_set;
#[cfg(all(test, not(loom)))]
mod live_set_tests;
mod memory;
#[cfg(all(test, loom))]
mod model_tests;
pub mod overflow;
pub mod prefetch;
pub mod probe;
pub mod restart;
mod ring;
#[cfg(all(test, not(loom)))]
mod ring_tests;
mod sample;
mod sampler_table;
pub mod self_walk;
pub mod signal_claim;
mod slot;
pub mod slot_clock;
pub mod slot_table;
#[cfg(all(test, not(loom)))]
mod slot_tests;
pub mod split_mix;
mod synthetic_frame;
#[cfg(not(loom))]
mod thread_sampler;
pub mod walk_fault;

pub use address_filter::AddressFilter;
pub use capture::{CaptureFn, CaptureOtherFn, Captured, HandlerContext, RawStack};
pub use context::{Context, InlineContext};
pub use drop_reason::DropReason;
pub use entry::MAX_FRAMES;
pub use exponential_distance::exponential_distance;
pub use generation::{count_forks, fork_generation};
pub use inbox::{Inbox, WakeReason};
pub use live_set::{LiveObject, LiveSet, LiveSlot};
pub use memory::{Memory, ProcessMemory};
pub use ring::Ring;
pub use sample::{RawFrame, RawSample, SampleFlags, SampleKind};
pub use slot::{EnterOutcome, Slot, SlotInit, Ticker, MAX_PERIODS_AHEAD};
pub use split_mix::Sequence;
pub use synthetic_frame::SyntheticFrame;
#[cfg(not(loom))]
pub use thread_sampler::{SelectedAllocation, ThreadSampler, ThreadSampling};
