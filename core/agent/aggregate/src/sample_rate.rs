//! Bounds the cost of the profiles whose samples follow the program: the heap profile, and waits for locks. More than 200 samples in a
//! second double the interval (bytes, nanoseconds of waits), fewer than 75 per second return it towards the configured one.
//! Estimates stay unbiased, since the number of earlier samples decides about later ones only, and each sample keeps the interval of its
//! selection. The clock is the time of the samples. Not here: the limit of live samples (`HeapEstimator::limit`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

/// More samples per second double the interval.
const MOST: f64 = 200.0;
/// With fewer, half the interval gives no more than 150.
const LEAST: f64 = 75.0;
const SECOND_NS: u64 = 1_000_000_000;
/// The interval is not doubled beyond this: 1 GiB, or 1.07 s.
const LONGEST_INTERVAL: u64 = 1 << 30;

/// The number of doublings, and the samples since it was last considered.
#[derive(Default)]
pub struct SampleRate {
    /// Whether samples are limited.
    pub is_limited: bool,
    doublings: u32,
    first_ns: Option<u64>,
    last_ns: u64,
    samples: u64,
}

impl SampleRate {
    /// At the configured interval.
    pub const fn new(is_limited: bool) -> Self {
        Self { is_limited, doublings: 0, first_ns: None, last_ns: 0, samples: 0 }
    }

    /// Counts a sample that was taken at this time.
    pub fn count(&mut self, time_ns: u64) {
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.samples += 1;
    }

    /// The interval of new samples; `configured` is the shortest one. Called after each sample or batch of samples.
    pub fn interval(&mut self, configured: u64) -> u64 {
        let passed_ns = self.first_ns.map_or(0, |first| self.last_ns.saturating_sub(first));
        // A burst that lasts less than a second has a second's samples.
        let mut rate = self.samples as f64 * SECOND_NS as f64 / passed_ns.max(SECOND_NS) as f64;
        if rate > MOST || passed_ns >= SECOND_NS {
            while rate > MOST && configured << (self.doublings + 1) <= LONGEST_INTERVAL {
                (rate, self.doublings) = (rate / 2.0, self.doublings + 1);
            }
            while rate < LEAST && self.doublings > 0 {
                (rate, self.doublings) = (rate * 2.0, self.doublings - 1);
            }
            (self.first_ns, self.samples) = (None, 0);
        }
        if !self.is_limited {
            self.doublings = 0;
        }
        configured << self.doublings
    }
}

/// The threshold of waits for locks in this process.
pub static LOCK_THRESHOLD: WaitThreshold = WaitThreshold::new();
/// The threshold of waits of futures in this process.
pub static AWAIT_THRESHOLD: WaitThreshold = WaitThreshold::new();

/// The duration from which on every wait is recorded. It rises while many waits are recorded.
pub struct WaitThreshold {
    now_ns: AtomicU64,
    configured_ns: AtomicU64,
    is_limited: AtomicBool,
    /// Never waited for: if a fork leaves it locked, the threshold of the child stays as it is.
    rate: Mutex<SampleRate>,
}

impl WaitThreshold {
    /// The threshold while no waits are reported.
    const OFF: u64 = u64::MAX;

    const fn new() -> Self {
        Self {
            now_ns: AtomicU64::new(Self::OFF),
            configured_ns: AtomicU64::new(Self::OFF),
            is_limited: AtomicBool::new(false),
            rate: Mutex::new(SampleRate::new(true)),
        }
    }

    /// Nanoseconds; `None` while no waits are reported.
    #[inline]
    pub fn get(&self) -> Option<u64> {
        Some(self.now_ns.load(Ordering::Relaxed)).filter(|threshold_ns| *threshold_ns != Self::OFF)
    }

    /// Reports waits from now on, or with `None` no longer. Any thread.
    pub fn set(&self, threshold_ns: Option<u64>, is_limited: bool) {
        let threshold_ns = threshold_ns.map_or(Self::OFF, |threshold_ns| threshold_ns.min(Self::OFF - 1));
        self.is_limited.store(is_limited, Ordering::Relaxed);
        if self.configured_ns.swap(threshold_ns, Ordering::Relaxed) != threshold_ns || !is_limited {
            self.now_ns.store(threshold_ns, Ordering::Relaxed);
        }
    }

    /// A wait that ended at this time was recorded. Of two such calls at the same time, one is not counted.
    pub fn count(&self, time_ns: u64) {
        let (now_ns, configured_ns) = (self.now_ns.load(Ordering::Relaxed), self.configured_ns.load(Ordering::Relaxed));
        if configured_ns == Self::OFF || !self.is_limited.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(mut rate) = self.rate.try_lock() {
            rate.count(time_ns);
            let (changed_ns, order) = (rate.interval(configured_ns.max(1)), Ordering::Relaxed);
            // Fails where the configuration has changed meanwhile.
            let _ = self.now_ns.compare_exchange(now_ns, changed_ns, order, order);
        }
    }
}
