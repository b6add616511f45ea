//! What the handler counts, for the life of the process. Relaxed and monotone; readers see each counter true, not all
//! of them at one instant. `stats()` is built from these.

use crate::DropReason;
use core::sync::atomic::{AtomicU64, Ordering};

const REASONS: usize = 32;

static SAMPLES: AtomicU64 = AtomicU64::new(0);
static SAMPLED_CPU_NS: AtomicU64 = AtomicU64::new(0);
static STRAY: AtomicU64 = AtomicU64::new(0);
static HANDLER_NS: AtomicU64 = AtomicU64::new(0);
static BY_REASON: [AtomicU64; REASONS] = [const { AtomicU64::new(0) }; REASONS];

/// CPU samples that reached the ring.
pub fn samples() -> u64 {
    SAMPLES.load(Ordering::Relaxed)
}

/// CPU time that entries in the ring carry, those that only tell of a loss included.
pub fn sampled_cpu_ns() -> u64 {
    SAMPLED_CPU_NS.load(Ordering::Relaxed)
}

/// Signals of the clock's number that nobody wanted: swallowed.
pub fn stray() -> u64 {
    STRAY.load(Ordering::Relaxed)
}

/// Monotonic time between entering and leaving the handler, summed.
pub fn handler_ns() -> u64 {
    HANDLER_NS.load(Ordering::Relaxed)
}

/// Samples lost, or kept without their frames, for `reason`.
pub fn by_reason(reason: DropReason) -> u64 {
    BY_REASON.get(reason as usize).map_or(0, |count| count.load(Ordering::Relaxed))
}

/// Counts one loss; also for those who lose samples outside the handler.
pub fn count(reason: DropReason) {
    if let Some(counter) = BY_REASON.get(reason as usize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// In a forked child everything was counted in the parent, and is counted there.
pub fn forget_after_fork() {
    for counter in [&SAMPLES, &SAMPLED_CPU_NS, &STRAY, &HANDLER_NS].into_iter().chain(&BY_REASON) {
        counter.store(0, Ordering::Relaxed);
    }
}

/// See `handler::Session::fetch_ahead`.
pub(crate) fn fetch_ahead() {
    for counter in [&SAMPLES, &HANDLER_NS] {
        crate::fetch::ahead((counter as *const AtomicU64).cast(), 8);
    }
}

pub(crate) fn count_sample() {
    SAMPLES.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add_sampled_cpu_ns(ns: u64) {
    SAMPLED_CPU_NS.fetch_add(ns, Ordering::Relaxed);
}

pub(crate) fn count_stray() {
    STRAY.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add_handler_ns(ns: u64) {
    HANDLER_NS.fetch_add(ns, Ordering::Relaxed);
}
