//! The types of the keys of tail-based retention: `retention`, `tail_duration` and `tail_cpu_share`.

use std::time::Duration;

use super::shape::Shape;
use super::value::{ConfigType, ConfigValue};

/// Detail in which samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleRetention {
    /// The same for all samples.
    All,
    /// Decided at the end of each request.
    Tail,
}

impl ConfigType for SampleRetention {
    const SHAPE: Shape = Shape::Choice(&["all", "tail"]);

    fn from_value(value: &ConfigValue) -> Option<Self> {
        match lower_case(value)?.as_str() {
            "all" => Some(Self::All),
            "tail" => Some(Self::Tail),
            _ => None,
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::Tail => "tail".to_owned(),
        }
    }
}

/// Duration from which the samples of a request are kept in full detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TailDuration {
    /// Independent of the duration.
    Ignored,
    /// Longer than the 99th percentile of the endpoint's requests.
    Percentile,
    /// At least this duration.
    AtLeast(Duration),
}

impl From<Duration> for TailDuration {
    fn from(least: Duration) -> Self {
        Self::AtLeast(least)
    }
}

impl ConfigType for TailDuration {
    const SHAPE: Shape = Shape::NumberOr(&["p99", "none"]);

    fn from_value(value: &ConfigValue) -> Option<Self> {
        match lower_case(value).as_deref() {
            Some("p99") => Some(Self::Percentile),
            Some("none") => Some(Self::Ignored),
            _ => Duration::from_value(value).map(Self::AtLeast),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Ignored => "none".to_owned(),
            Self::Percentile => "p99".to_owned(),
            Self::AtLeast(least) => least.to_text(),
        }
    }

    fn magnitude(&self) -> Option<f64> {
        match self {
            Self::AtLeast(least) => least.magnitude(),
            _ => None,
        }
    }
}

/// CPU seconds per second of a request; above 1 on several threads. Text may be in percent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct CpuShare(pub f64);

impl From<f64> for CpuShare {
    fn from(share: f64) -> Self {
        Self(share)
    }
}

impl ConfigType for CpuShare {
    const SHAPE: Shape = Shape::Share;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        f64::from_value(value).map(Self)
    }

    fn to_text(&self) -> String {
        self.0.to_string()
    }

    fn magnitude(&self) -> Option<f64> {
        Some(self.0)
    }
}

fn lower_case(value: &ConfigValue) -> Option<String> {
    match value {
        ConfigValue::Text(text) => Some(text.trim().to_ascii_lowercase()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_of_seconds_a_percentile_or_none() {
        let parsed = |text: &str| TailDuration::from_value(&text.into());
        assert_eq!(parsed("p99"), Some(TailDuration::Percentile));
        assert_eq!(parsed("None"), Some(TailDuration::Ignored));
        assert_eq!(parsed("250ms"), Some(TailDuration::AtLeast(Duration::from_millis(250))));
        assert_eq!(TailDuration::from_value(&ConfigValue::Float(0.5)), parsed("0.5"));
        assert_eq!((parsed("p95"), parsed("-1"), parsed("slow")), (None, None, None));
        for text in ["p99", "none", "0.25"] {
            assert_eq!(parsed(text).map(|duration| duration.to_text()).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_share_that_is_no_finite_number_is_refused() {
        assert_eq!(CpuShare::from_value(&"0.8".into()), Some(CpuShare(0.8)));
        assert_eq!(CpuShare::from_value(&"80%".into()), Some(CpuShare(0.8)));
        assert_eq!(CpuShare::from_value(&ConfigValue::Int(2)), Some(CpuShare(2.0)));
        for text in ["NaN", "inf", "80%%", ""] {
            assert_eq!(CpuShare::from_value(&text.into()), None, "{text}");
        }
    }
}
