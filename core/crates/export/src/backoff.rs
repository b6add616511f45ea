//! How long to pause before the next attempt: exponential with full jitter, never less than the receiver asked for.

use crate::outcome::RetryReason;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
/// For a receiver that answers: it may be overloaded.
const LONGEST: Duration = Duration::from_secs(30);
/// For a receiver that does not answer. An attempt is one connection with one payload, so that a receiver which comes back
/// gets what waits within seconds, and one that stays away is asked ten times a minute at most.
const LONGEST_UNANSWERED: Duration = Duration::from_secs(6);
const LONGEST_DEMANDED: Duration = Duration::from_secs(300);

/// Time to let pass before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// What the receiver asked for; nothing shortens it.
    pub demanded: Duration,
    /// Our own jitter on top.
    pub own: Duration,
}

/// Failures in a row, and the dice. Belongs to a destination: a receiver that is down stays down for the next payload.
pub(crate) struct Backoff {
    dice: fastrand::Rng,
    failures: u32,
}

impl Backoff {
    /// To be made on the export thread: its randomness is drawn from the system for the thread, while that of a thread
    /// which lived through a fork is the same in every child, and they would retry in step.
    pub fn new() -> Self {
        Self::with_seed(RandomState::new().hash_one(0u8))
    }

    fn with_seed(seed: u64) -> Self {
        Self { dice: fastrand::Rng::with_seed(seed), failures: 0 }
    }

    /// The pause after one more failure. The jitter comes on top of a demanded pause, so that clients which were sent
    /// away together do not come back together.
    pub fn next_pause(&mut self, reason: RetryReason) -> Pause {
        let (demanded, longest) = match reason {
            RetryReason::Asked(demanded) => (demanded, LONGEST),
            RetryReason::NotConnected | RetryReason::NoAnswer => (None, LONGEST_UNANSWERED),
        };
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        let own = ceiling.mul_f64(self.dice.f64());
        Pause { demanded: demanded.unwrap_or_default().min(LONGEST_DEMANDED), own }
    }

    /// The receiver answered otherwise than "later".
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, RetryReason};
    use std::time::Duration;

    #[test]
    fn pauses_stay_below_a_ceiling_that_doubles_from_one_second_to_thirty() {
        for seed in 0..200 {
            let mut backoff = Backoff::with_seed(seed);
            for ceiling_s in [1, 2, 4, 8, 16, 30, 30, 30] {
                assert!(backoff.next_pause(RetryReason::Asked(None)).own <= Duration::from_secs(ceiling_s));
            }
            backoff.reset();
            assert!(backoff.next_pause(RetryReason::Asked(None)).own <= Duration::from_secs(1));
        }
    }

    #[test]
    fn a_receiver_that_does_not_answer_is_tried_again_within_six_seconds_and_not_without_pause() {
        for reason in [RetryReason::NotConnected, RetryReason::NoAnswer] {
            let mut backoff = Backoff::with_seed(7);
            let pauses: Vec<_> = (0..1000).map(|_| backoff.next_pause(reason).own).collect();
            assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(6)));
            assert!(pauses.iter().sum::<Duration>() > Duration::from_secs(2700), "tried too often");
        }
    }

    #[test]
    fn a_thousand_clients_retry_spread_over_the_whole_interval() {
        for failure in 0..6 {
            let mut buckets = [0u32; 20];
            for seed in 0..1000 {
                let mut backoff = Backoff::with_seed(seed);
                let pauses: Vec<_> = (0..=failure).map(|_| backoff.next_pause(RetryReason::Asked(None))).collect();
                let ceiling = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0][failure];
                let share = pauses[failure].own.as_secs_f64() / ceiling;
                buckets[((share * 20.0) as usize).min(19)] += 1;
            }
            let fullest = buckets.iter().max().unwrap();
            assert!(*fullest <= 3 * 50, "after failure {failure} the buckets are {buckets:?}");
            assert!(buckets.iter().all(|bucket| *bucket > 0), "after failure {failure} the buckets are {buckets:?}");
        }
    }

    #[test]
    fn a_demanded_pause_is_never_cut_short_and_at_most_five_minutes_long() {
        for (asked_s, demanded_s) in [(7, 7), (86_400, 300)] {
            let pause = Backoff::with_seed(1).next_pause(RetryReason::Asked(Some(Duration::from_secs(asked_s))));
            assert_eq!(pause.demanded, Duration::from_secs(demanded_s));
            assert!(pause.own <= Duration::from_secs(1));
        }
    }

    #[test]
    fn two_back_offs_of_one_process_differ() {
        let pauses: Vec<_> = (0..8).map(|_| Backoff::new().next_pause(RetryReason::NotConnected)).collect();
        assert!(pauses.windows(2).any(|pair| pair[0] != pair[1]), "{pauses:?}");
    }
}
