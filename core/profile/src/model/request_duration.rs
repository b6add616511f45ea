//! The label `duration` of ended requests: nanoseconds, rounded so that requests of similar durations share one sample. Set when an
//! ended request is counted; read for the quantiles of an endpoint, and for the durations of its slow requests.

/// Fine steps per power of two.
const STEPS: u16 = 64;
/// Fine steps of a coarse one.
const COARSE: u16 = 8;

/// A rounded duration, by its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestDuration(u16);

impl RequestDuration {
    /// Key of the label.
    pub const LABEL: &'static str = "duration";
    /// Unit of the label.
    pub const UNIT: &'static str = "ns";

    /// Rounded by less than 1 %: of one request.
    pub fn fine(ns: u64) -> Self {
        let octave = ns.max(1).ilog2();
        let step = (u128::from(ns.max(1)) * u128::from(STEPS)) >> octave;
        Self(octave as u16 * STEPS + step as u16 - STEPS)
    }

    /// Rounded by less than 7 %: of many requests, which have few distinct values.
    pub fn coarse(ns: u64) -> Self {
        let Self(fine) = Self::fine(ns);
        Self(fine - fine % COARSE + COARSE / 2)
    }

    /// Nanoseconds.
    pub fn ns(self) -> u64 {
        let (octave, step) = (self.0 / STEPS, self.0 % STEPS);
        let halves = 2 * u128::from(STEPS + step) + 1;
        u64::try_from((halves << octave) / u128::from(2 * STEPS)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_by_less_than_one_and_seven_percent() {
        let mut ns = 1_000;
        while ns < u64::MAX / 5 * 4 {
            let error = |rounded: RequestDuration| (rounded.ns() as f64 / ns as f64 - 1.0).abs();
            assert!(error(RequestDuration::fine(ns)) < 0.01, "{ns}");
            assert!(error(RequestDuration::coarse(ns)) < 0.07, "{ns}");
            ns = ns / 4 * 5 + 1;
        }
    }

    #[test]
    fn the_shortest_and_the_longest_duration_have_a_step() {
        assert_eq!((RequestDuration::fine(0).ns(), RequestDuration::coarse(1).ns()), (1, 1));
        assert!(RequestDuration::fine(u64::MAX).ns() > u64::MAX / 100 * 99);
    }

    #[test]
    fn a_power_of_two_has_eight_coarse_steps() {
        let steps: std::collections::BTreeSet<_> =
            (1 << 20..1 << 21).step_by(1000).map(RequestDuration::coarse).collect();
        assert_eq!(steps.len(), 8);
    }
}
