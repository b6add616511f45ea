//! When an endpoint is pulled: at a fixed rate from a random start, later and later while it fails.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Longest time between two pulls of a failing endpoint whose interval is shorter.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// The times of one endpoint's pulls.
#[derive(Debug)]
pub(super) struct PullSchedule {
    interval: Duration,
    next: Instant,
    failures: u32,
}

impl PullSchedule {
    /// Starts at a random moment of the first interval, so that targets are not pulled all at once.
    pub fn new(interval: Duration, now: Instant) -> Self {
        let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        let jitter = Duration::from_nanos(RandomState::new().hash_one(0u8) % nanos);
        Self { interval, next: now + jitter, failures: 0 }
    }

    pub fn next(&self) -> Instant {
        self.next
    }

    /// Sets the time after a successful pull; returns the number of times that have passed meanwhile.
    pub fn succeeded(&mut self, now: Instant) -> u64 {
        self.failures = 0;
        let passed = now.saturating_duration_since(self.next).as_nanos() / self.interval.as_nanos().max(1);
        let passed = u32::try_from(passed).unwrap_or(u32::MAX - 1);
        self.next += self.interval.saturating_mul(passed + 1);
        u64::from(passed)
    }

    /// Sets the time after a failure: the interval, doubled for each further failure.
    pub fn failed(&mut self, now: Instant) {
        let delay = self.interval.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.next = now + delay.min(MAX_BACKOFF.max(self.interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pulls_keep_a_fixed_rate_from_a_random_start_and_skip_missed_times() {
        let now = Instant::now();
        let mut schedule = PullSchedule::new(10 * SECOND, now);
        let first = schedule.next();
        assert!((now..now + 10 * SECOND).contains(&first));

        assert_eq!(schedule.succeeded(first + 9 * SECOND), 0);
        assert_eq!(schedule.next(), first + 10 * SECOND);
        assert_eq!(schedule.succeeded(first + 35 * SECOND), 2);
        assert_eq!(schedule.next(), first + 40 * SECOND);

        let starts: std::collections::HashSet<_> =
            (0..20).map(|_| PullSchedule::new(10 * SECOND, now).next()).collect();
        assert!(starts.len() > 1);
    }

    #[test]
    fn a_failing_endpoint_is_pulled_less_and_less_often() {
        let now = Instant::now();
        let mut schedule = PullSchedule::new(10 * SECOND, now);
        let mut delay = || {
            schedule.failed(now);
            (schedule.next() - now).as_secs()
        };
        assert_eq!([delay(), delay(), delay(), delay(), delay(), delay(), delay()], [10, 20, 40, 80, 160, 300, 300]);
        schedule.succeeded(now);
        schedule.failed(now);
        assert_eq!(schedule.next() - now, 10 * SECOND);

        let mut rare = PullSchedule::new(1000 * SECOND, now);
        rare.failed(now);
        rare.failed(now);
        assert_eq!(rare.next() - now, 1000 * SECOND);
    }
}
