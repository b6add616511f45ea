//! Selects allocations for the heap profile: a Poisson process over allocated bytes, with one countdown per thread. The samples
//! of all threads together are again a Poisson process. Called by allocator hooks. Not here: the storage of the
//! countdown (thread-local storage of a program, `sampler_table` for a library that is loaded at run time).
//!
//! # Rules
//! 1. A countdown counts with the mean interval with which it was drawn. When the interval of the process changes, the
//!    thread draws again at its next allocation. That is unbiased, because the exponential distribution has no memory.
//! 2. Interval 0 means stopped: each thread notices it at its next allocation, so no sample is taken for nothing.
//! 3. The frequent case is one load of shared memory that is nearly never written, and one subtraction in the thread's own
//!    memory. Only this thread writes there: loads and stores need no lock prefix.

use crate::atomics::{AtomicI64, AtomicU64, AtomicU8, Ordering};
use crate::heap::exponential_distance::exponential_distance;
use crate::split_mix;

/// Bytes until the next sample of a thread that is not sampled.
const PARKED: i64 = i64::MAX;

/// A word in a cache line of its own, since every allocation of every thread reads it.
#[repr(align(128))]
struct ReadMostly(AtomicU64);

/// The mean interval of all countdowns, bytes; 0 while stopped.
static INTERVAL: ReadMostly = ReadMostly(AtomicU64::new(0));
/// Random number of the run: a forked child, which inherits the states of its threads, draws other numbers.
static RUN: AtomicU64 = AtomicU64::new(0);
/// First state of the next thread's random numbers.
static NEXT_STATE: AtomicU64 = AtomicU64::new(0);

/// Which allocations of a thread are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ThreadSampling {
    /// A Poisson process over the allocated bytes.
    Enabled,
    /// None: a thread of the profiler.
    Excluded,
    /// Each, so that a caller can observe whether a hook is called, and its stack.
    Probe,
}

impl ThreadSampling {
    fn from_number(number: u8) -> Self {
        [Self::Enabled, Self::Excluded, Self::Probe]
            .into_iter()
            .find(|sampling| *sampling as u8 == number)
            .unwrap_or(Self::Enabled)
    }
}

/// An allocation that its thread's countdown selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedAllocation {
    /// A sample, with the mean interval with which it was selected, bytes.
    Sample(u64),
    /// An allocation during [`ThreadSampling::Probe`].
    Probe,
}

/// The countdown of one thread.
pub struct ThreadSampler {
    /// Bytes until the next sample; it is due when the value is negative.
    remaining: AtomicI64,
    /// Interval with which `remaining` was drawn; 0: not drawn.
    drawn_with: AtomicU64,
    /// State of the random numbers (SplitMix64); 0: none yet.
    random: AtomicU64,
    /// A [`ThreadSampling`].
    sampling: AtomicU8,
}

impl ThreadSampler {
    /// The countdown of a new thread.
    pub const fn new() -> Self {
        Self {
            remaining: AtomicI64::new(PARKED),
            drawn_with: AtomicU64::new(0),
            random: AtomicU64::new(0),
            sampling: AtomicU8::new(ThreadSampling::Enabled as u8),
        }
    }

    /// Deducts an allocation of `bytes` from the countdown. False, without a change, when it needs [`Self::select`] instead, which then counts it.
    #[inline(always)]
    pub fn deduct(&self, bytes: usize) -> bool {
        // No allocator provides more than i64::MAX bytes.
        let left = self.remaining.load(Ordering::Relaxed).wrapping_sub(bytes as i64);
        if left < 0 || INTERVAL.0.load(Ordering::Relaxed) != self.drawn_with.load(Ordering::Relaxed) {
            return false;
        }
        self.remaining.store(left, Ordering::Relaxed);
        true
    }

    /// Counts an allocation for which [`Self::deduct`] returned false; `None` when it is not selected.
    pub fn select(&self, bytes: usize) -> Option<SelectedAllocation> {
        let interval = INTERVAL.0.load(Ordering::Relaxed);
        match ThreadSampling::from_number(self.sampling.load(Ordering::Relaxed)) {
            ThreadSampling::Probe => return Some(SelectedAllocation::Probe),
            ThreadSampling::Enabled if interval != 0 => {}
            _ => {
                self.remaining.store(PARKED, Ordering::Relaxed);
                self.drawn_with.store(interval, Ordering::Relaxed);
                return None;
            }
        }
        if self.drawn_with.load(Ordering::Relaxed) != interval {
            self.draw(interval);
        }
        let left = self.remaining.load(Ordering::Relaxed).wrapping_sub(bytes as i64);
        if left >= 0 {
            self.remaining.store(left, Ordering::Relaxed);
            return None;
        }
        self.draw(interval);
        Some(SelectedAllocation::Sample(interval))
    }

    /// Changes which allocations of the thread are selected; returns the previous value.
    pub fn set_sampling(&self, sampling: ThreadSampling) -> ThreadSampling {
        // The next allocation calls `select`.
        self.remaining.store(-1, Ordering::Relaxed);
        self.drawn_with.store(0, Ordering::Relaxed);
        let before = self.sampling.load(Ordering::Relaxed);
        self.sampling.store(sampling as u8, Ordering::Relaxed);
        ThreadSampling::from_number(before)
    }

    fn draw(&self, interval: u64) {
        let mut state = self.random.load(Ordering::Relaxed);
        if state == 0 {
            state = split_mix::mix(NEXT_STATE.fetch_add(split_mix::INCREMENT, Ordering::Relaxed));
        }
        state = state.wrapping_add(split_mix::INCREMENT);
        self.random.store(state, Ordering::Relaxed);
        let number = split_mix::mix(state ^ RUN.load(Ordering::Relaxed));
        self.remaining.store(exponential_distance(number, interval), Ordering::Relaxed);
        self.drawn_with.store(interval, Ordering::Relaxed);
    }
}

impl Default for ThreadSampler {
    fn default() -> Self {
        Self::new()
    }
}

/// Starts all countdowns with a mean interval of `interval` bytes (at least 1).
pub(crate) fn start(interval: u64, seed: u64) {
    RUN.store(seed, Ordering::Relaxed);
    set_interval(interval);
}

/// Changes the mean interval of the running countdowns.
pub(crate) fn set_interval(interval: u64) {
    let interval = interval.max(1);
    if INTERVAL.0.load(Ordering::Relaxed) != interval {
        INTERVAL.0.store(interval, Ordering::Relaxed);
    }
}

/// Stops all countdowns.
pub(crate) fn stop() {
    INTERVAL.0.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::sampler_table::{self, SamplerTable};
    use std::sync::{Mutex, PoisonError};

    /// Selected allocations of `count`, and their interval.
    fn allocate(sampler: &ThreadSampler, bytes: usize, count: u32) -> u32 {
        (0..count).filter(|_| !sampler.deduct(bytes) && sampler.select(bytes).is_some()).count() as u32
    }

    fn one_at_a_time(body: impl FnOnce()) {
        static SERIAL: Mutex<()> = Mutex::new(());
        let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
        body();
        stop();
    }

    #[test]
    fn a_stopped_sampler_selects_nothing_and_a_started_one_counts_from_the_first_allocation() {
        one_at_a_time(|| {
            let sampler = ThreadSampler::new();
            assert_eq!(allocate(&sampler, 1 << 40, 100), 0);
            start(1, 1);
            assert_eq!(allocate(&sampler, 1 << 40, 100), 100);
            stop();
            assert_eq!(allocate(&sampler, 1 << 40, 100), 0);
            start(1, 1);
            assert_eq!(allocate(&sampler, 1 << 40, 100), 100);
        });
    }

    #[test]
    fn an_allocation_is_selected_with_the_probability_of_its_size_by_each_thread() {
        const THREADS: u32 = 4;
        const ROUNDS: u32 = if cfg!(miri) { 50 } else { 50_000 };
        one_at_a_time(|| {
            start(1000, 1);
            for size in [1usize, 10, 100, 1000, 5000] {
                let threads: Vec<_> = (0..THREADS)
                    .map(|_| std::thread::spawn(move || allocate(&ThreadSampler::new(), size, ROUNDS)))
                    .collect();
                let selected: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
                let rounds = f64::from(THREADS * ROUNDS);
                let expected = 1.0 - (-(size as f64) / 1000.0).exp();
                let (rate, error) = (f64::from(selected) / rounds, (expected * (1.0 - expected) / rounds).sqrt());
                assert!((rate - expected).abs() < 5.0 * error, "{size}: {rate} instead of {expected} ± {error}");
            }
        });
    }

    #[test]
    fn threads_that_do_nothing_but_count_select_with_the_probability_of_each_size_with_and_without_a_slot() {
        const THREADS: u64 = 6;
        const ROUNDS: u32 = if cfg!(miri) { 50 } else { 500_000 };
        const INTERVAL: u64 = 8192;
        // The last two have no slot.
        let table = SamplerTable::new();
        let mut threads: Vec<u64> = (1..10_000).filter(|thread| table.claim(*thread).is_some()).take(4).collect();
        let without: Vec<u64> = (1..10_000).filter(|thread| table.claim(*thread).is_none()).take(2).collect();
        threads.extend(without);
        assert_eq!(threads.len(), if cfg!(miri) { 4 } else { THREADS as usize });
        one_at_a_time(|| {
            start(INTERVAL, 3);
            let count = |thread: u64, bytes: usize| {
                (0..ROUNDS).filter(|_| !table.deduct(thread, bytes) && table.select(thread, bytes).is_some()).count()
            };
            let selected: Vec<usize> = std::thread::scope(|scope| {
                let running: Vec<_> = threads
                    .iter()
                    .enumerate()
                    // A multiple of the size for each thread: a lost count would favor one of them.
                    .map(|(number, thread)| scope.spawn(move || count(*thread, 8 << number)))
                    .collect();
                running.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (number, selected) in selected.iter().enumerate() {
                let probability = 1.0 - (-f64::from(8u32 << number) / INTERVAL as f64).exp();
                let expected = probability * f64::from(ROUNDS);
                let errors = (*selected as f64 - expected) / (expected * (1.0 - probability)).sqrt();
                println!("{} bytes: {selected} instead of {expected:.0}, {errors:+.2} standard errors", 8 << number);
                assert!(errors.abs() < 4.5, "{} bytes: {selected} instead of {expected}", 8 << number);
            }
        });
    }

    #[test]
    fn threads_of_the_process_select_with_the_probability_of_each_size_whichever_slot_is_tried_first() {
        const ROUNDS: u32 = if cfg!(miri) { 50 } else { 500_000 };
        one_at_a_time(|| {
            start(8192, 5);
            let count = |bytes: usize| {
                (0..ROUNDS).filter(|_| !sampler_table::deduct(bytes) && sampler_table::select(bytes).is_some()).count()
            };
            let threads: Vec<_> =
                [8, 64, 512, 4096].map(|bytes| (bytes, std::thread::spawn(move || count(bytes)))).into();
            for (bytes, thread) in threads {
                let probability = 1.0 - (-(bytes as f64) / 8192.0).exp();
                let expected = probability * f64::from(ROUNDS);
                let selected = thread.join().unwrap() as f64;
                let errors = (selected - expected) / (expected * (1.0 - probability)).sqrt();
                assert!(errors.abs() < 5.0, "{bytes} bytes: {selected} instead of {expected}");
            }
        });
    }

    #[test]
    fn a_changed_interval_applies_at_the_next_allocation() {
        one_at_a_time(|| {
            let sampler = ThreadSampler::new();
            start(1 << 40, 7);
            assert_eq!(allocate(&sampler, 64, 100), 0);
            set_interval(1);
            assert!(!sampler.deduct(64));
            assert_eq!(sampler.select(64), Some(SelectedAllocation::Sample(1)));
        });
    }

    #[test]
    fn an_excluded_thread_is_not_sampled_and_a_probe_selects_every_allocation() {
        one_at_a_time(|| {
            let sampler = ThreadSampler::new();
            start(1, 1);
            assert_eq!(sampler.set_sampling(ThreadSampling::Excluded), ThreadSampling::Enabled);
            assert_eq!(allocate(&sampler, 1000, 100), 0);
            sampler.set_sampling(ThreadSampling::Probe);
            assert_eq!(allocate(&sampler, 1, 3), 3);
            assert_eq!(sampler.set_sampling(ThreadSampling::Enabled), ThreadSampling::Probe);
            assert_eq!(allocate(&sampler, 1000, 100), 100);
        });
    }
}
