//! The 99th percentile of the duration of each endpoint's requests: a histogram of fixed size per endpoint, over a bounded
//! number of endpoints. Newer requests weigh more.

use crate::hash::WordMap;

/// Buckets per power of two: the percentile is at most 1/16 (6.25 %) too large.
const BUCKETS_PER_OCTAVE: usize = 16;
/// From 1 µs to 2^39 µs (6 days).
const OCTAVES: usize = 36;
const BUCKETS: usize = BUCKETS_PER_OCTAVE * (OCTAVES + 1);
/// Requests of an endpoint before it has a percentile.
const MIN_REQUESTS: u32 = 100;
/// Requests at which all counts are halved.
const MAX_REQUESTS: u32 = 16_384;
/// Endpoints with a histogram of their own, 2.4 KB each; all others share one.
const MAX_ENDPOINTS: usize = 512;
/// Key of the shared histogram.
const OTHER_ENDPOINTS: u64 = 0;

/// Request durations by endpoint (a hash of its name).
#[derive(Default)]
pub(super) struct EndpointLatencies {
    of_endpoint: WordMap<u64, LatencyHistogram>,
}

impl EndpointLatencies {
    /// Adds a duration; returns the percentile of the durations before it, `None` if these are fewer than [`MIN_REQUESTS`].
    pub fn record(&mut self, endpoint: u64, duration_ns: u64) -> Option<u64> {
        let is_known = self.of_endpoint.contains_key(&endpoint) || self.of_endpoint.len() < MAX_ENDPOINTS;
        let histogram = self.of_endpoint.entry(if is_known { endpoint } else { OTHER_ENDPOINTS }).or_default();
        let before = histogram.p99_ns();
        histogram.add(duration_ns);
        before
    }
}

struct LatencyHistogram {
    counts: Box<[u32; BUCKETS]>,
    total: u32,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl LatencyHistogram {
    fn add(&mut self, duration_ns: u64) {
        if self.total >= MAX_REQUESTS {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        if let Some(count) = self.counts.get_mut(bucket_of(duration_ns)) {
            *count += 1;
            self.total += 1;
        }
    }

    /// Upper bound of the bucket that contains the percentile.
    fn p99_ns(&self) -> Option<u64> {
        if self.total < MIN_REQUESTS {
            return None;
        }
        let mut above = self.total / 100;
        let highest = self.counts.iter().rposition(|count| {
            let is_percentile = *count > above;
            above = above.saturating_sub(*count);
            is_percentile
        });
        highest.map(upper_bound_ns)
    }
}

/// Durations below 16 µs have a bucket per microsecond.
fn bucket_of(duration_ns: u64) -> usize {
    let micros = duration_ns / 1_000;
    if micros < BUCKETS_PER_OCTAVE as u64 {
        return micros as usize;
    }
    let shift = micros.ilog2() - BUCKETS_PER_OCTAVE.ilog2();
    let bucket = BUCKETS_PER_OCTAVE * (shift as usize + 1) + (micros >> shift) as usize - BUCKETS_PER_OCTAVE;
    bucket.min(BUCKETS - 1)
}

fn upper_bound_ns(bucket: usize) -> u64 {
    let (octave, within) = (bucket / BUCKETS_PER_OCTAVE, (bucket % BUCKETS_PER_OCTAVE) as u64);
    let micros = match octave.checked_sub(1) {
        None => within + 1,
        Some(shift) => (within + 1 + BUCKETS_PER_OCTAVE as u64) << shift,
    };
    micros * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::Sequence;

    #[test]
    fn every_duration_lies_in_its_bucket_and_the_bound_is_at_most_a_sixteenth_above() {
        let mut random = Sequence::new(7);
        for _ in 0..100_000 {
            let duration_ns = random.next() >> (random.next() % 40 + 16);
            let bound_ns = upper_bound_ns(bucket_of(duration_ns));
            assert!(bound_ns > duration_ns, "{duration_ns}");
            assert!(bound_ns - duration_ns <= duration_ns / 16 + 1_000, "{duration_ns} {bound_ns}");
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
    }

    #[test]
    fn the_percentile_follows_the_durations_of_its_endpoint() {
        let mut latencies = EndpointLatencies::default();
        for number in 0..1_000u64 {
            let percentile = latencies.record(1, (number % 100 + 1) * 1_000_000);
            assert_eq!(percentile.is_some(), number >= u64::from(MIN_REQUESTS));
            latencies.record(2, 5_000_000);
        }
        let p99 = latencies.record(1, 1).unwrap();
        assert!((99_000_000..=106_000_000).contains(&p99), "{p99}");
        assert!((5_000_000..=5_400_000).contains(&latencies.record(2, 1).unwrap()));
        for _ in 0..3 * MAX_REQUESTS {
            latencies.record(1, 2_000_000);
        }
        let now = latencies.record(1, 1).unwrap();
        assert!(now <= 2_200_000, "older durations are forgotten: {now}");
    }

    #[test]
    fn the_number_of_endpoints_is_bounded() {
        let mut latencies = EndpointLatencies::default();
        for endpoint in 1..=100_000 {
            latencies.record(endpoint, 1_000);
        }
        assert!(latencies.of_endpoint.len() <= MAX_ENDPOINTS + 1);
    }
}
