//! Samples events by their duration, so that frequent short events cost little and totals stay unbiased: an event of at
//! least the threshold is always recorded, a shorter one of duration d with probability p = d/threshold and the weight 1/p.
//! Each recorded event then stands for at least the threshold. For garbage collections and waits for locks.

use spanprof_os::random;

/// The events that a recorded one represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledEvent {
    /// Total duration, nanoseconds.
    pub duration_ns: u64,
    /// Number of events, rounded up or down at random so that its mean is exact.
    pub events: u64,
}

/// Decides whether an event is recorded; `None` when not. Events of duration 0 are never recorded. Any thread; no lock, no
/// allocation.
pub fn sample_event(duration_ns: u64, threshold_ns: u64) -> Option<SampledEvent> {
    select_event(duration_ns, threshold_ns, random::number())
}

/// As [`sample_event`], with a uniform random number. If an event is recorded, so is a longer one with the same number.
pub(crate) fn select_event(duration_ns: u64, threshold_ns: u64, random: u64) -> Option<SampledEvent> {
    if duration_ns >= threshold_ns {
        return Some(SampledEvent { duration_ns, events: 1 });
    }
    select(duration_ns, threshold_ns, random)
}

/// As [`select_event`] below the threshold.
fn select(duration_ns: u64, threshold_ns: u64, random: u64) -> Option<SampledEvent> {
    // Uniform below the threshold.
    let drawn = ((u128::from(random) * u128::from(threshold_ns)) >> 64) as u64;
    // If selected, `drawn` is uniform below the duration, and rounds up with probability remainder/duration.
    (drawn < duration_ns).then(|| SampledEvent {
        duration_ns: threshold_ns,
        events: threshold_ns / duration_ns + u64::from(drawn < threshold_ns % duration_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_short_events_are_unbiased() {
        let mut random = spanprof_signal::Sequence::new(7);
        for duration_ns in [1, 10, 333, 9_000, 9_999] {
            let (mut sums, rounds) = ([0.0; 2], 2_000_000);
            for _ in 0..rounds {
                if let Some(event) = select(duration_ns, 10_000, random.next()) {
                    sums[0] += event.duration_ns as f64;
                    sums[1] += event.events as f64;
                }
            }
            let selected = rounds as f64 * duration_ns as f64 / 10_000.0;
            // Relative standard error of the number of selected events.
            let error = ((1.0 - duration_ns as f64 / 10_000.0) / selected).sqrt();
            for (sum, truth) in sums.into_iter().zip([(rounds * duration_ns) as f64, rounds as f64]) {
                assert!((sum / truth - 1.0).abs() < 5.0 * error + 1e-9, "{duration_ns}: {sum} of {truth}");
            }
        }
    }

    #[test]
    fn an_event_at_the_threshold_is_always_recorded_as_it_is() {
        for duration_ns in [10_000, 10_001, u64::MAX] {
            assert_eq!(sample_event(duration_ns, 10_000), Some(SampledEvent { duration_ns, events: 1 }));
        }
        assert_eq!(sample_event(0, 10_000), None);
        let recorded = (0..100_000).filter(|_| sample_event(1_000, 10_000).is_some()).count();
        assert!((9_000..11_000).contains(&recorded), "{recorded} of 100,000 at a tenth of the threshold");
    }
}
