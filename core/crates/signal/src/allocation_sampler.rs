//! Selects allocations for the heap profile: a Poisson process over allocated bytes. An allocation of S bytes is selected
//! with probability 1 − e^(−S/R), where R is the mean interval. Called by allocator hooks. Not here: weights (the facade),
//! the live set (`live_set`).
//!
//! One sampler counts the allocations of all threads. Its state is in static memory, not in thread-local storage: the
//! first access of a thread to the storage of a loaded library allocates. A Poisson process over the merged allocations
//! selects each of them with the same probability as one process per thread.
//!
//! # Callers that are not serialized
//! Loads and stores need no lock prefix. Threads that race decide by the same distance, or one stores an older distance
//! back. A distance has no memory: a stored one is a new draw, or a draw that exceeded all bytes counted against it, so
//! what is left of it has the same exponential distribution. Each decision thus keeps its probability, with one exception: an
//! exceeded, hence short distance remains in use until [`AllocationSampler::next`] replaces it, and longer if another thread
//! stores it back. Allocations of other threads in these nanoseconds are selected too often. The new distance is drawn in
//! advance to keep this time short, and an exceeded distance is never stored by the thread that sees it.

use crate::atomics::{AtomicI64, AtomicU64, Ordering};
use crate::split_mix;

/// Bytes until the next sample of a stopped sampler. No program allocates as much before the sampler is parked again.
const PARKED: i64 = i64::MAX / 2;
/// Upper bound of a drawn distance, far below `PARKED`.
const MAX_DISTANCE: f64 = (1u64 << 60) as f64;

/// See the module documentation. A new sampler is parked: it selects nothing.
pub struct AllocationSampler {
    /// Bytes until the next sample. Negative only after [`Self::make_due`].
    remaining: AtomicI64,
    /// Mean interval with which `remaining` was drawn, bytes.
    drawn_with: AtomicU64,
    /// Mean interval of the next draw, bytes.
    interval: AtomicU64,
    /// The next distance, drawn in advance; in units of the mean, as the bits of an `f64`.
    prepared: AtomicU64,
    /// State of the random numbers (SplitMix64).
    random: AtomicU64,
}

impl AllocationSampler {
    /// A parked sampler.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            remaining: AtomicI64::new(PARKED),
            drawn_with: AtomicU64::new(1),
            interval: AtomicU64::new(1),
            prepared: AtomicU64::new(0),
            random: AtomicU64::new(0),
        }
    }

    /// Counts an allocation; true when it is due as a sample. The caller then calls [`Self::next`] or [`Self::park`] at once.
    #[inline(always)]
    pub fn take(&self, bytes: usize) -> bool {
        // No allocator provides more than i64::MAX bytes.
        let left = self.remaining.load(Ordering::Relaxed).wrapping_sub(bytes as i64);
        if left < 0 {
            return true;
        }
        self.remaining.store(left, Ordering::Relaxed);
        false
    }

    /// Starts sampling with a mean interval of `interval` bytes (at least 1).
    pub fn start(&self, interval: u64, seed: u64) {
        self.random.store(seed, Ordering::Relaxed);
        self.set_interval(interval);
        self.prepare();
        self.next();
    }

    /// Changes the mean interval, from the next sample on.
    pub fn set_interval(&self, interval: u64) {
        self.interval.store(interval.max(1), Ordering::Relaxed);
    }

    /// The mean interval of the next draw, bytes.
    pub fn interval(&self) -> u64 {
        self.interval.load(Ordering::Relaxed)
    }

    /// Replaces the distance by a new one. Returns the interval with which the current sample was drawn: its probability
    /// depends on that one.
    pub fn next(&self) -> u64 {
        let interval = self.interval();
        let prepared = f64::from_bits(self.prepared.load(Ordering::Relaxed));
        self.remaining.store(scaled(prepared, interval), Ordering::Relaxed);
        self.prepare();
        self.drawn_with.swap(interval, Ordering::Relaxed)
    }

    fn prepare(&self) {
        let state = self.random.load(Ordering::Relaxed).wrapping_add(split_mix::INCREMENT);
        self.random.store(state, Ordering::Relaxed);
        self.prepared.store(unit_distance(split_mix::mix(state)).to_bits(), Ordering::Relaxed);
    }

    /// Selects nothing from now on.
    pub fn park(&self) {
        self.remaining.store(PARKED, Ordering::Relaxed);
    }

    /// Draws a distance if the sampler is parked. A hook that ran during [`Self::start`] may have overwritten the first one.
    pub fn resume(&self) {
        if self.remaining.load(Ordering::Relaxed) > MAX_DISTANCE as i64 {
            self.next();
        }
    }

    /// Makes each allocation due until [`Self::next`] or [`Self::park`].
    pub fn make_due(&self) {
        self.remaining.store(-1, Ordering::Relaxed);
    }

    /// Whether each allocation is due.
    pub fn is_due(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) < 0
    }
}

#[cfg(not(loom))]
impl Default for AllocationSampler {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes until the next sample of a Poisson process with a mean interval of `interval` bytes. `random` has 64 random bits.
#[cfg(not(loom))]
pub(crate) fn exponential_distance(random: u64, interval: u64) -> i64 {
    scaled(unit_distance(random), interval)
}

/// An exponential distance with mean 1.
fn unit_distance(random: u64) -> f64 {
    // In (0, 1].
    let uniform = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -ln(uniform)
}

/// Bytes of a distance in units of the mean.
fn scaled(distance: f64, interval: u64) -> i64 {
    // Truncation is exact: S bytes exceed the truncated distance if and only if they exceed the distance.
    (distance * interval as f64).min(MAX_DISTANCE) as i64
}

/// The natural logarithm of a positive normal number, to 12 digits. `core` has none, and the mathematics library is not
/// part of this crate.
fn ln(x: f64) -> f64 {
    const TERMS: [f64; 11] = [
        1.0 / 21.0,
        1.0 / 19.0,
        1.0 / 17.0,
        1.0 / 15.0,
        1.0 / 13.0,
        1.0 / 11.0,
        1.0 / 9.0,
        1.0 / 7.0,
        1.0 / 5.0,
        1.0 / 3.0,
        1.0,
    ];
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // ln m = 2 artanh((m − 1) / (m + 1)), a series in odd powers of at most 1/3.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let series = TERMS.iter().fold(0.0, |sum, term| sum * ratio * ratio + term);
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * ratio * series
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_equals_that_of_the_mathematics_library() {
        for x in [f64::MIN_POSITIVE, 1e-16, 1e-9, 0.1, 0.499_999, 0.5, 0.75, 0.999_999_999, 1.0, 1.5, 3.0] {
            assert!((ln(x) - x.ln()).abs() <= 1e-11 * x.ln().abs().max(1.0), "{x}: {} {}", ln(x), x.ln());
        }
    }

    #[test]
    fn a_new_and_a_parked_sampler_select_nothing() {
        let sampler = AllocationSampler::new();
        assert!((0..1000).all(|_| !sampler.take(1 << 40)));
        sampler.start(1, 7);
        sampler.park();
        assert!((0..1000).all(|_| !sampler.take(1 << 40)));
    }

    #[test]
    fn a_start_that_a_hook_overwrote_is_repeated() {
        let sampler = AllocationSampler::new();
        sampler.start(1000, 1);
        sampler.resume();
        assert!(sampler.remaining.load(Ordering::Relaxed) < 1 << 30, "a running sampler keeps its distance");
        sampler.remaining.store(PARKED - 100, Ordering::Relaxed);
        sampler.resume();
        assert!(sampler.remaining.load(Ordering::Relaxed) < 1 << 30);
    }

    #[test]
    fn an_allocation_is_selected_with_the_probability_of_its_size() {
        const ROUNDS: u32 = if cfg!(miri) { 200 } else { 200_000 };
        let sampler = AllocationSampler::new();
        sampler.start(1000, 1);
        for size in [1usize, 10, 100, 1000, 5000] {
            let selected = (0..ROUNDS).filter(|_| sampler.take(size) && sampler.next() == 1000).count() as f64;
            let expected = 1.0 - (-(size as f64) / 1000.0).exp();
            let (rate, error) =
                (selected / f64::from(ROUNDS), (expected * (1.0 - expected) / f64::from(ROUNDS)).sqrt());
            assert!((rate - expected).abs() < 5.0 * error, "{size}: {rate} instead of {expected} ± {error}");
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn threads_that_count_and_work_at_the_same_time_select_as_many_bytes_as_one_after_another() {
        const THREADS: usize = 4;
        const ALLOCATIONS: u32 = 300_000;
        const INTERVAL: u64 = 8192;
        let sampler = AllocationSampler::new();
        sampler.start(INTERVAL, 5);
        let is_sample = |size: usize| {
            // Some microseconds: a million allocations per second are many for code without the GIL.
            (0..200u32).for_each(|number| _ = std::hint::black_box(number));
            sampler.take(size) && sampler.next() == INTERVAL
        };
        let count = |size: usize| (0..ALLOCATIONS).filter(|_| is_sample(size)).count();
        let selected: usize = std::thread::scope(|scope| {
            // A multiple of the size for each thread: a lost count would favor one of them.
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || count(10 << thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let probability = |thread: usize| 1.0 - (-f64::from(10u32 << thread) / INTERVAL as f64).exp();
        let expected = (0..THREADS).map(probability).sum::<f64>() * f64::from(ALLOCATIONS);
        // 5,500 samples have a standard error of 1.4 %. Threads that do nothing but count select up to 2.6 times as many.
        let share = selected as f64 / expected;
        assert!((0.93..1.3).contains(&share), "{selected} of {expected}");
    }

    #[test]
    fn a_sample_has_the_interval_with_which_it_was_drawn() {
        let sampler = AllocationSampler::new();
        sampler.start(64, 3);
        sampler.set_interval(1 << 20);
        while !sampler.take(64) {}
        assert_eq!(sampler.next(), 64);
        assert_eq!(sampler.next(), 1 << 20);
    }
}
