//! Runs inside signal handlers, with the lock-free structures that handlers share with normal threads; never allocates, locks,
//! formats, panics, or is the first to access thread-local storage.
//!
//! The folders, each of which uses only those before it: `ring` · `signals` · `walk` · `heap` and `clock`. Not here: timers and threads (`spanprof-os`), names (`spanprof-aggregate`), languages (the bindings).
#![cfg_attr(not(any(test, loom)), no_std)]

mod atomics;
mod clock;
mod context;
mod drop_reason;
pub mod futex;
mod generation;
pub mod heap;
#[cfg(all(test, loom))]
mod model_tests;
#[cfg(not(loom))]
pub mod parking;
pub mod prefetch;
mod ring;
mod signals;
pub mod split_mix;
mod walk;

pub use clock::{counters, handler, probe, restart, signal_claim};
pub use context::{Context, InlineContext};
pub use drop_reason::DropReason;
pub use generation::{count_forks, fork_generation};
pub use heap::address_filter::AddressFilter;
pub use heap::exponential_distance::exponential_distance;
pub use heap::live_set::{LiveObject, LiveSet, LiveSlot};
#[cfg(not(loom))]
pub use heap::thread_sampler::{SelectedAllocation, ThreadSampler, ThreadSampling};
pub use ring::entry::MAX_FRAMES;
pub use ring::inbox::{Inbox, WakeReason};
pub use ring::sample::{RawFrame, RawSample, SampleFlags, SampleKind};
pub use ring::sample_ring::Ring;
pub use ring::synthetic_frame::SyntheticFrame;
pub use signals::slot::{EnterOutcome, Slot, SlotInit, Ticker, MAX_PERIODS_AHEAD};
pub use signals::{arm, forward, overflow, slot_clock, slot_table};
pub use split_mix::Sequence;
pub use walk::capture::{CaptureFn, CaptureOtherFn, Captured, HandlerContext, PendingFrames, RawStack};
pub use walk::memory::{CheckedMemory, Memory, ProcessMemory, USER_SPACE_END};
pub use walk::published::{BorrowedValue, Published};
pub use walk::{buffer_pool, exchange, guarded, self_walk, walk_fault};
