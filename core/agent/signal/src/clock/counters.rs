//! Counters of the handler, for the life of the process; `stats()` reports them. They are monotone and use relaxed
//! atomics: each counter is exact, but several counters are not read at one instant.

use crate::drop_reason::DropReason;
use core::sync::atomic::{AtomicU64, Ordering};

const REASONS: usize = 32;

/// The counters that each tick updates, in one cache line.
#[repr(align(64))]
struct TickCounters {
    samples: AtomicU64,
    sampled_cpu_ns: AtomicU64,
    handler_ns: AtomicU64,
    walk_ns: AtomicU64,
    delivery_ns: AtomicU64,
}

/// Ticks of one kind of clock.
#[repr(align(64))]
struct ClockTicks {
    taken: AtomicU64,
    /// In 1,024ths.
    due: AtomicU64,
}

static TICKS: [ClockTicks; 2] = [const { ClockTicks { taken: AtomicU64::new(0), due: AtomicU64::new(0) } }; 2];
const DUE_SCALE: u64 = 1024;

static TICK_COUNTERS: TickCounters = TickCounters {
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
    TICK_COUNTERS.samples.load(Ordering::Relaxed)
}

/// CPU time of all submitted entries, including entries that report a loss.
pub fn sampled_cpu_ns() -> u64 {
    TICK_COUNTERS.sampled_cpu_ns.load(Ordering::Relaxed)
}

/// Clock signals without an owner, which the handler swallowed.
pub fn stray() -> u64 {
    STRAY.load(Ordering::Relaxed)
}

/// CPU time between entry and exit of the handler, summed. Excludes the kernel's delivery of the signal.
pub fn handler_ns() -> u64 {
    TICK_COUNTERS.handler_ns.load(Ordering::Relaxed)
}

/// The part of [`handler_ns`] spent in stack walks.
pub fn walk_ns() -> u64 {
    TICK_COUNTERS.walk_ns.load(Ordering::Relaxed)
}

/// Time from the overflow of a perf event to the handler, summed.
pub fn delivery_ns() -> u64 {
    TICK_COUNTERS.delivery_ns.load(Ordering::Relaxed)
}

/// Samples lost, or kept without frames, for `reason`.
pub fn by_reason(reason: DropReason) -> u64 {
    BY_REASON.get(reason as usize).map_or(0, |count| count.load(Ordering::Relaxed))
}

/// Counts one loss, in the handler or elsewhere.
pub fn count(reason: DropReason) {
    if let Some(counter) = BY_REASON.get(reason as usize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ticks of perf events (`true`) or thread timers whose samples reached the ring, and ticks that were due: the CPU time
/// of their threads divided by the period, or by the kernel tick where it is longer and the clock is a timer.
pub fn ticks(is_perf: bool) -> [u64; 2] {
    let ticks = &TICKS[usize::from(is_perf)];
    [ticks.taken.load(Ordering::Relaxed), ticks.due.load(Ordering::Relaxed) / DUE_SCALE]
}

/// Counts a tick whose sample reached the ring.
pub(crate) fn count_tick(is_perf: bool) {
    TICKS[usize::from(is_perf)].taken.fetch_add(1, Ordering::Relaxed);
}

/// Counts the ticks that were due in CPU time that is now accounted for, with or without a stack.
pub(crate) fn count_due(is_perf: bool, cpu_ns: u64, period_ns: u64) {
    let due = cpu_ns.saturating_mul(DUE_SCALE) / period_ns.max(1);
    TICKS[usize::from(is_perf)].due.fetch_add(due, Ordering::Relaxed);
}

/// Resets all counters in a forked child: the parent reports the events before the fork.
pub fn reset_after_fork() {
    let TickCounters { samples, sampled_cpu_ns, handler_ns, walk_ns, delivery_ns } = &TICK_COUNTERS;
    for counter in [samples, sampled_cpu_ns, handler_ns, walk_ns, delivery_ns, &STRAY].into_iter().chain(&BY_REASON) {
        counter.store(0, Ordering::Relaxed);
    }
    for ticks in &TICKS {
        ticks.taken.store(0, Ordering::Relaxed);
        ticks.due.store(0, Ordering::Relaxed);
    }
}

/// See `handler::SamplingSession::prefetch`.
pub(crate) fn prefetch() {
    crate::prefetch::range((&raw const TICK_COUNTERS).cast(), size_of::<TickCounters>());
    crate::prefetch::range((&raw const TICKS).cast(), size_of_val(&TICKS));
}

pub(crate) fn count_sample() {
    TICK_COUNTERS.samples.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add_sampled_cpu_ns(ns: u64) {
    TICK_COUNTERS.sampled_cpu_ns.fetch_add(ns, Ordering::Relaxed);
}

pub(crate) fn count_stray() {
    STRAY.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add_delivery_ns(ns: u64) {
    TICK_COUNTERS.delivery_ns.fetch_add(ns, Ordering::Relaxed);
}

pub(crate) fn add_handler_ns(ns: u64, walk_ns: u64) {
    TICK_COUNTERS.handler_ns.fetch_add(ns, Ordering::Relaxed);
    TICK_COUNTERS.walk_ns.fetch_add(walk_ns, Ordering::Relaxed);
}
