//! Delay before the next attempt: exponential back-off with full jitter, never shorter than the receiver requested.

use crate::outcome::RetryReason;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const INITIAL_CEILING: Duration = Duration::from_secs(1);
/// For a receiver that responds: it may be overloaded.
const MAX_CEILING: Duration = Duration::from_secs(30);
/// For a receiver that does not respond. An attempt costs one connection and one payload. A receiver that recovers gets the
/// queue within seconds; one that stays down gets about ten attempts a minute.
const MAX_CEILING_UNRESPONSIVE: Duration = Duration::from_secs(6);
const MAX_REQUESTED: Duration = Duration::from_secs(300);

/// Delay before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryDelay {
    /// Requested by the receiver; nothing shortens it.
    pub requested: Duration,
    /// Jittered back-off, added to the requested delay.
    pub jittered: Duration,
}

/// Consecutive failures and the source of jitter. One per destination: a receiver that is down is down for every payload.
pub(crate) struct Backoff {
    jitter: fastrand::Rng,
    consecutive_failures: u32,
}

impl Backoff {
    /// Must run on the export thread. `RandomState` seeds each new thread from the system; a thread that survived a fork has
    /// the same seed in every child, so that the children would retry in step.
    pub fn new() -> Self {
        Self::with_seed(RandomState::new().hash_one(0u8))
    }

    fn with_seed(seed: u64) -> Self {
        Self { jitter: fastrand::Rng::with_seed(seed), consecutive_failures: 0 }
    }

    /// The delay after one more failure. The jitter is added to a requested delay, so that clients throttled at the same
    /// moment do not retry at the same moment.
    pub fn next_delay(&mut self, reason: RetryReason) -> RetryDelay {
        let (requested, max_ceiling) = match reason {
            RetryReason::Throttled(requested) => (requested, MAX_CEILING),
            RetryReason::NotConnected | RetryReason::NoResponse => (None, MAX_CEILING_UNRESPONSIVE),
        };
        let ceiling = INITIAL_CEILING.saturating_mul(1 << self.consecutive_failures.min(16)).min(max_ceiling);
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        let jittered = ceiling.mul_f64(self.jitter.f64());
        RetryDelay { requested: requested.unwrap_or_default().min(MAX_REQUESTED), jittered }
    }

    /// Called after a final response.
    pub fn reset(&mut self) {
        self.consecutive_failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, RetryReason};
    use std::time::Duration;

    #[test]
    fn delays_stay_below_a_ceiling_that_doubles_from_one_second_to_thirty() {
        for seed in 0..200 {
            let mut backoff = Backoff::with_seed(seed);
            for ceiling_s in [1, 2, 4, 8, 16, 30, 30, 30] {
                assert!(backoff.next_delay(RetryReason::Throttled(None)).jittered <= Duration::from_secs(ceiling_s));
            }
            backoff.reset();
            assert!(backoff.next_delay(RetryReason::Throttled(None)).jittered <= Duration::from_secs(1));
        }
    }

    #[test]
    fn attempts_to_an_unresponsive_receiver_are_at_most_six_seconds_and_on_average_almost_three_apart() {
        for reason in [RetryReason::NotConnected, RetryReason::NoResponse] {
            let mut backoff = Backoff::with_seed(7);
            let delays: Vec<_> = (0..1000).map(|_| backoff.next_delay(reason).jittered).collect();
            assert!(delays.iter().all(|delay| *delay <= Duration::from_secs(6)));
            assert!(delays.iter().sum::<Duration>() > Duration::from_secs(2700), "too many attempts");
        }
    }

    #[test]
    fn a_thousand_clients_retry_spread_over_the_whole_interval() {
        for failure in 0..6 {
            let mut buckets = [0u32; 20];
            for seed in 0..1000 {
                let mut backoff = Backoff::with_seed(seed);
                let delays: Vec<_> = (0..=failure).map(|_| backoff.next_delay(RetryReason::Throttled(None))).collect();
                let ceiling = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0][failure];
                let share = delays[failure].jittered.as_secs_f64() / ceiling;
                buckets[((share * 20.0) as usize).min(19)] += 1;
            }
            let fullest = buckets.iter().max().unwrap();
            assert!(*fullest <= 3 * 50, "after failure {failure} the buckets are {buckets:?}");
            assert!(buckets.iter().all(|bucket| *bucket > 0), "after failure {failure} the buckets are {buckets:?}");
        }
    }

    #[test]
    fn two_back_offs_of_one_process_differ() {
        let delays: Vec<_> = (0..8).map(|_| Backoff::new().next_delay(RetryReason::NotConnected)).collect();
        assert!(delays.windows(2).any(|pair| pair[0] != pair[1]), "{delays:?}");
    }
}
