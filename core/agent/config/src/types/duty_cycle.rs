//! Duty cycles: a kind of samples is taken for a part of each period. The phase is random for each process, so that the
//! processes of a fleet do not start together. Pure; the times are monotonic.

use std::time::Duration;

use super::shape::Shape;
use super::value::{ConfigType, ConfigValue};

/// Samples for `on` in each `every`, written `15s/5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DutyCycle {
    /// Duration of the samples, at least 1 s and at most `every`.
    pub on: Duration,
    /// Duration of a period, at most 24 h.
    pub every: Duration,
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl ConfigType for DutyCycle {
    const SHAPE: Shape = Shape::DutyCycle;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        let ConfigValue::Text(text) = value else { return None };
        let (on, every) = text.split_once('/')?;
        let duration = |text: &str| Duration::from_value(&text.into());
        let cycle = Self { on: duration(on)?, every: duration(every)? };
        (cycle.on >= SECOND && cycle.on <= cycle.every && cycle.every <= DAY).then_some(cycle)
    }

    fn problem(value: &ConfigValue) -> Option<String> {
        matches!(value, ConfigValue::Text(_)).then(|| {
            "expected two durations such as 15s/5m: the first of at least 1s and at most the second, which is at most 24h".to_owned()
        })
    }

    fn to_text(&self) -> String {
        self.text()
    }
}

impl DutyCycle {
    /// The text of the duty cycle in a configuration.
    #[doc(hidden)]
    pub fn text(&self) -> String {
        format!("{}s/{}s", self.on.as_secs_f64(), self.every.as_secs_f64())
    }

    /// Whether samples are taken, and the time of the next change.
    pub(crate) fn at(&self, now_ns: u64, phase: f64) -> (bool, u64) {
        let (on_ns, every_ns) = (self.on.as_nanos() as u64, self.every.as_nanos() as u64);
        let in_cycle_ns = (now_ns + (phase * every_ns as f64) as u64) % every_ns;
        if in_cycle_ns < on_ns {
            (true, now_ns + on_ns - in_cycle_ns)
        } else {
            (false, now_ns + every_ns - in_cycle_ns)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duty_cycle_has_two_durations_of_which_the_first_is_at_most_the_second() {
        let parsed = |text: &str| DutyCycle::from_value(&text.into());
        let cycle = parsed("15s/5m").unwrap();
        assert_eq!((cycle.on.as_secs(), cycle.every.as_secs(), cycle.to_text()), (15, 300, "15s/300s".to_owned()));
        assert_eq!(parsed(&cycle.to_text()), Some(cycle));
        for refused in ["15s", "5m/15s", "0.5s/5m", "1s/25h", "x/5m", "15s/"] {
            assert_eq!(parsed(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_kind_is_on_for_its_part_of_each_period_in_every_phase() {
        const S: u64 = 1_000_000_000;
        let cycle = DutyCycle { on: Duration::from_secs(15), every: Duration::from_secs(300) };
        for phase in [0.0, 0.3, 0.99] {
            let (mut now_ns, mut on_ns) = (7 * S, 0);
            let end_ns = now_ns + 3000 * S;
            while now_ns < end_ns {
                let (is_on, change_ns) = cycle.at(now_ns, phase);
                assert!(change_ns > now_ns);
                on_ns += if is_on { change_ns.min(end_ns) - now_ns } else { 0 };
                now_ns = change_ns;
            }
            assert_eq!(on_ns, 150 * S, "phase {phase}");
        }
        assert_ne!(cycle.at(0, 0.0).0, cycle.at(0, 0.5).0, "phases differ");
    }
}
