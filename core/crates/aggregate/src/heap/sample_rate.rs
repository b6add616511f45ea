//! Bounds the cost of the heap profile: more than 200 samples in a second double its interval, fewer than 75 per second return it
//! towards the configured one. Estimates stay unbiased, since the number of earlier samples decides about later ones only, and
//! each sample keeps the interval of its selection. The clock is the time of the samples. Not here: the limit of live samples
//! (`HeapEstimator::limit`).

/// More samples per second double the interval.
const MOST: f64 = 200.0;
/// With fewer, half the interval gives no more than 150.
const LEAST: f64 = 75.0;
const SECOND_NS: u64 = 1_000_000_000;
/// The interval is not doubled beyond this, bytes.
const LONGEST_INTERVAL: u64 = 1 << 30;

/// The number of doublings, and the samples since it was last considered.
#[derive(Default)]
pub(crate) struct SampleRate {
    /// Whether samples are limited.
    pub is_limited: bool,
    doublings: u32,
    first_ns: Option<u64>,
    last_ns: u64,
    samples: u64,
}

impl SampleRate {
    /// Counts a sample that was taken at this time.
    pub fn count(&mut self, time_ns: u64) {
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.samples += 1;
    }

    /// The interval of new samples, bytes; `configured` is the shortest one. Called after each batch of samples.
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

    /// Begins again at the configured interval, which has changed.
    pub fn reset(&mut self) {
        *self = Self { is_limited: self.is_limited, ..Self::default() };
    }
}
