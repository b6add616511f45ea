//! What the handler counts, for the life of the process. Relaxed and monotone; readers see each counter true, not all
//! of them at one instant. `stats()` is built from these.

use crate::DropReason;
use core::sync::atomic::{AtomicU64, Ordering};

const REASONS: usize = 32;

/// What each tick writes, in one cache line.
#[repr(align(64))]
struct OfTicks {
    samples: AtomicU64,
    sampled_cpu_ns: AtomicU64,
    handler_ns: AtomicU64,
    walk_ns: AtomicU64,
    delivery_ns: AtomicU64,
}

static OF_TICKS: OfTicks = OfTicks {
    samples: AtomicU64::new(0),
    sampled_cpu_ns: AtomicU64::new(0),
    handler_ns: AtomicU64::new(0),
    walk_ns: AtomicU64::new(0),
    delivery_ns: AtomicU64::new(0),
};
static STRAY: AtomicU64 = AtomicU64::new(0);
static BY_REASON: [AtomicU64; REASONS] = [const { AtomicU64::new(0) }; REASONS];

/// CPU samples that reached the ring.
pub fn samples() -> u64 {
    OF_TICKS.samples.load(Ordering::Relaxed)
}

/// CPU time that entries in the ring carry, those that only tell of a loss included.
pub fn sampled_cpu_ns() -> u64 {
    OF_TICKS.sampled_cpu_ns.load(Ordering::Relaxed)
}

/// Signals of the clock's number that nobody wanted: swallowed.
pub fn stray() -> u64 {
    STRAY.load(Ordering::Relaxed)
}

/// CPU time between entering and leaving the handler, summed. The signal's delivery by the kernel is not part of it.
pub fn handler_ns() -> u64 {
    OF_TICKS.handler_ns.load(Ordering::Relaxed)
}

/// The part of it in which stacks were walked.
pub fn walk_ns() -> u64 {
    OF_TICKS.walk_ns.load(Ordering::Relaxed)
}

/// Time between the overflow of a perf event and the handler, summed.
pub fn delivery_ns() -> u64 {
    OF_TICKS.delivery_ns.load(Ordering::Relaxed)
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
pub fn reset_after_fork() {
    let OfTicks { samples, sampled_cpu_ns, handler_ns, walk_ns, delivery_ns } = &OF_TICKS;
    for counter in [samples, sampled_cpu_ns, handler_ns, walk_ns, delivery_ns, &STRAY].into_iter().chain(&BY_REASON) {
        counter.store(0, Ordering::Relaxed);
    }
}

/// See `handler::Session::prefetch`.
pub(crate) fn prefetch() {
    crate::prefetch::range((&raw const OF_TICKS).cast(), size_of::<OfTicks>());
}

pub(crate) fn count_sample() {
    OF_TICKS.samples.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add_sampled_cpu_ns(ns: u64) {
    OF_TICKS.sampled_cpu_ns.fetch_add(ns, Ordering::Relaxed);
}

pub(crate) fn count_stray() {
    STRAY.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add_delivery_ns(ns: u64) {
    OF_TICKS.delivery_ns.fetch_add(ns, Ordering::Relaxed);
}

pub(crate) fn add_handler_ns(ns: u64, walk_ns: u64) {
    OF_TICKS.handler_ns.fetch_add(ns, Ordering::Relaxed);
    OF_TICKS.walk_ns.fetch_add(walk_ns, Ordering::Relaxed);
}
