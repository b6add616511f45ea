//! The limits of the governor as an effective configuration. Pure.

use std::time::Duration;

use crate::wall::pace;

use super::{Governor, MIN_RATE_HZ, SHED_HEAP_FACTOR};
use spanprof_config::{Config, ConfigSource};

/// Why an effective value differs from the configured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    CpuBudget,
    LoadShedding,
    /// The rate is above `sample_rate`, up to `sample_rate_max`.
    AdaptiveRate,
}

impl Limit {
    /// The key that caused it.
    pub fn key(self) -> &'static str {
        match self {
            Self::CpuBudget => "cpu_budget",
            Self::LoadShedding => "load_shedding_threshold",
            Self::AdaptiveRate => "sample_rate_max",
        }
    }
}

impl Governor {
    /// The reason for a difference between the configured and the effective values; `None` when there is none.
    pub fn limit(&self) -> Option<Limit> {
        if self.is_shedding {
            return Some(Limit::LoadShedding);
        }
        let is_limited = self.cpu_factor < 1.0 || self.wall_factor < 1.0 || self.upload_factor > 1;
        is_limited.then_some(Limit::CpuBudget).or((self.cpu_factor > 1.0).then_some(Limit::AdaptiveRate))
    }

    /// The types that are paused or thinned, of those that the configuration turns on.
    pub fn shed_types(&self, requested: &Config) -> Vec<&'static str> {
        let is_shedding = self.is_shedding;
        let is_wall_paused = is_shedding || self.wall_factor == 0.0;
        let types = [
            ("wall", requested.wall && is_wall_paused),
            ("off_cpu", requested.off_cpu && is_wall_paused),
            ("threads", requested.threads && is_shedding),
            ("lock", requested.lock && is_shedding),
            ("heap", requested.heap && is_shedding),
        ];
        types.into_iter().filter(|(_, is_shed)| *is_shed).map(|(name, _)| name).collect()
    }

    /// The effective configuration. The source of each changed value is the governor.
    pub fn limited(&self, requested: &Config) -> Config {
        let mut config = requested.clone();
        let floor = MIN_RATE_HZ.min(requested.sample_rate);
        let highest = requested.sample_rate_max.unwrap_or(0).max(requested.sample_rate);
        let scaled = (f64::from(requested.sample_rate) * self.cpu_factor) as u32;
        config.sample_rate = if self.is_shedding { floor } else { scaled.clamp(floor, highest) };
        config.upload_interval = Duration::from_nanos(self.upload_ns(requested));
        let shed = self.shed_types(requested);
        for (name, is_on) in [
            ("wall", &mut config.wall),
            ("off_cpu", &mut config.off_cpu),
            ("threads", &mut config.threads),
            ("lock", &mut config.lock),
        ] {
            *is_on &= !shed.contains(&name);
        }
        if shed.contains(&"heap") {
            config.heap_interval = requested.heap_interval.saturating_mul(SHED_HEAP_FACTOR).min(MAX_HEAP_INTERVAL);
        }
        // A wall rate that follows `sample_rate` follows the configured one.
        let rate = pace::rate_hz(requested);
        let limited = ((f64::from(rate) * self.wall_factor) as u32).max(1);
        if requested.wall_rate.is_some() || limited < rate || config.sample_rate != requested.sample_rate {
            config.wall_rate = Some(limited);
        }
        let changed = [
            ("sample_rate", config.sample_rate != requested.sample_rate),
            ("wall_rate", config.wall_rate != requested.wall_rate),
            ("upload_interval", config.upload_interval != requested.upload_interval),
            ("heap_interval", config.heap_interval != requested.heap_interval),
        ];
        let changed = changed.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name);
        for name in changed.chain(shed.into_iter().filter(|name| *name != "heap")) {
            config.sources.insert(name, ConfigSource::Governor);
        }
        config
    }

    /// The comment on profiles; empty when the configured values apply.
    pub fn comment(&self, requested: &Config) -> String {
        let Some(limit) = self.limit() else { return String::new() };
        let effective = self.limited(requested);
        let mut parts = Vec::new();
        if effective.sample_rate != requested.sample_rate {
            parts.push(format!("sample_rate={} (configured {})", effective.sample_rate, requested.sample_rate));
        }
        if effective.upload_interval != requested.upload_interval {
            parts.push(format!("upload_interval={}", effective.upload_interval.as_secs_f64()));
        }
        if effective.wall && pace::rate_hz(&effective) != pace::rate_hz(requested) {
            parts.push(format!("wall_rate={} (configured {})", pace::rate_hz(&effective), pace::rate_hz(requested)));
        }
        let shed = self.shed_types(requested);
        if !shed.is_empty() {
            parts.push(format!("shed={}", shed.join(",")));
        }
        if parts.is_empty() {
            return String::new();
        }
        let verb = if limit == Limit::AdaptiveRate { "raised" } else { "limited" };
        format!("spanprof governor: {}; {verb} by {}", parts.join(", "), limit.key())
    }
}

/// Largest value of `heap_interval`, bytes.
const MAX_HEAP_INTERVAL: u64 = 67_108_864;
