//! The overhead governor: keeps the CPU time of the profiler within `cpu_budget`, adapts the rate to the load, and sheds
//! load. Pure: an interval's measurements in, limits out. Not here: measurements, clocks and the application of the limits
//! (`profiler::governor`).
//!
//! Limits fall at once and rise slowly. The cost of samples is proportional to their rate, which makes one reduction
//! sufficient. A rise is taken only if the predicted cost stays below [`RISE_TARGET`] of the budget, so a constant load has
//! constant limits. A process without CPU time takes no CPU samples, and thus keeps its rate for the next burst.
//!
//! Rejected: straight to 10 Hz above the budget (at 101 % it loses nine of ten samples); a PI controller (oscillates with
//! bursts); skipping samples in the handler (signal and delivery are half of the cost); rates by the CPU use of the last interval
//! (lowers that of an idle service). The budget is a share of one core, or of the quota where that is below one. Shedding keeps
//! CPU samples, and the heap profile, whose objects in use a stop would lose. Costs of hooks inside host threads are not
//! measured.

mod limits;
#[cfg(test)]
mod tests;

use crate::wall::pace;
use spanprof_config::Config;

pub(crate) use limits::Limit;

/// Interval of the measurements.
pub(crate) const INTERVAL_NS: u64 = 10_000_000_000;
/// The CPU rate is not lowered below this, Hz: a burst of a second has ten samples.
pub(crate) const MIN_RATE_HZ: u32 = 10;
/// Maximum factor of `upload_interval`, and the longest interval that it leads to.
const MAX_UPLOAD_FACTOR: u32 = 6;
const MAX_UPLOAD_NS: u64 = 60_000_000_000;
/// Part of the budget that a reduction aims at, and that a rise stays below. The rest absorbs variations of the load.
const TARGET: f64 = 0.7;
const RISE_TARGET: f64 = 0.6;
/// Smallest factor of a rise, and the largest ones: back to the configured rate, and of the adaptive rate.
const MIN_RISE: f64 = 1.25;
const MAX_RISE: f64 = 10.0;
const MAX_ADAPTIVE_RISE: f64 = 2.0;
/// Longest wait for a rise, in accounting periods, where rises were too early.
const MAX_WAIT: u32 = 32;
/// Load below this part of a threshold ends its effect.
const RELEASE: f64 = 0.9;
/// Intervals below [`RELEASE`] until shed types return.
const CALM_INTERVALS: u32 = 3;
/// Factor of `heap_interval` while load is shed.
const SHED_HEAP_FACTOR: u64 = 16;

/// CPU time of the profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OverheadCost {
    /// Signal handler and the kernel's delivery of its signals: proportional to the CPU rate, ns.
    pub handler_ns: u64,
    /// Wall sampler: proportional to the wall rate, ns.
    pub wall_ns: u64,
    /// Other own threads: mostly proportional to the number of windows, ns.
    pub other_ns: u64,
}

impl OverheadCost {
    pub fn total_ns(self) -> u64 {
        self.handler_ns + self.wall_ns + self.other_ns
    }

    fn plus(self, other: Self) -> Self {
        Self {
            handler_ns: self.handler_ns + other.handler_ns,
            wall_ns: self.wall_ns + other.wall_ns,
            other_ns: self.other_ns + other.other_ns,
        }
    }
}

/// Measurements of one interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadInterval {
    pub elapsed_ns: u64,
    pub cost: OverheadCost,
    /// CPU quota in processors; `None` without one.
    pub quota: Option<f64>,
    /// CPU use as a share of the available CPU time, or that of the machine if it is higher.
    pub cpu_use: f64,
    /// Memory use as a share of the limit; 0 without a limit.
    pub memory_use: f64,
    /// Number of threads of the process.
    pub threads: u64,
    /// Whether it contains the start of the profiler, whose cost does not recur.
    pub has_start: bool,
}

impl LoadInterval {
    fn highest_use(&self) -> f64 {
        self.cpu_use.max(self.memory_use)
    }
}

/// State of the governor between two intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Governor {
    /// Factor of `sample_rate`: below 1 because of the budget, above 1 by the adaptive rate.
    cpu_factor: f64,
    /// Factor of the wall rate; 0: paused.
    wall_factor: f64,
    /// Cost per thread of the process at the lowest wall rate, as a share of one core, when the wall sampler was paused.
    paused_wall_share: f64,
    upload_factor: u32,
    is_shedding: bool,
    /// Consecutive intervals below the thresholds.
    calm: u32,
    /// Cost and duration of the current accounting period, which has at least one window.
    spent: OverheadCost,
    spent_over_ns: u64,
    /// Accounting periods since the last change, and those to wait before the next rise.
    unchanged: u32,
    wait: u32,
    /// Whether the last change was a rise.
    has_risen: bool,
}

impl Default for Governor {
    fn default() -> Self {
        Self {
            cpu_factor: 1.0,
            wall_factor: 1.0,
            paused_wall_share: 0.0,
            upload_factor: 1,
            is_shedding: false,
            calm: 0,
            spent: OverheadCost::default(),
            spent_over_ns: 0,
            unchanged: 0,
            wait: 1,
            has_risen: false,
        }
    }
}

/// Cost as shares of one core.
struct CostShares {
    handler: f64,
    wall: f64,
    other: f64,
}

impl CostShares {
    fn total(&self) -> f64 {
        self.handler + self.wall + self.other
    }
}

/// The budget as a share of one core; `None` without one. With a quota below one processor, a share of the quota.
pub(crate) fn budget_share(config: &Config, quota: Option<f64>) -> Option<f64> {
    (config.cpu_budget > 0.0).then(|| config.cpu_budget * quota.map_or(1.0, |quota| quota.min(1.0)))
}

impl Governor {
    /// Processes an interval. True when its cost exceeded the budget.
    pub fn step(&mut self, config: &Config, load: &LoadInterval) -> bool {
        self.shed(config, load);
        self.end_adaptive_rate(config, load);
        self.spent =
            self.spent.plus(if load.has_start { OverheadCost { other_ns: 0, ..load.cost } } else { load.cost });
        self.spent_over_ns += load.elapsed_ns;
        let Some(budget) = budget_share(config, load.quota) else {
            (self.cpu_factor, self.wall_factor, self.upload_factor) = (self.cpu_factor.max(1.0), 1.0, 1);
            self.end_period();
            self.rise(config, load, None);
            return false;
        };
        let period_ns = self.upload_ns(config).max(INTERVAL_NS);
        // The cost of a window recurs once per period, however early in the period it was measured.
        let over_ns = self.spent_over_ns.max(period_ns) as f64;
        let elapsed_ns = load.elapsed_ns.max(1) as f64;
        let shares = CostShares {
            handler: load.cost.handler_ns as f64 / elapsed_ns,
            wall: load.cost.wall_ns as f64 / elapsed_ns,
            other: self.spent.other_ns as f64 / over_ns,
        };
        let is_over = shares.handler + shares.wall > budget || self.spent.total_ns() as f64 / over_ns > budget;
        if is_over {
            self.lower(config, load, &shares, budget * TARGET);
        } else if self.spent_over_ns >= period_ns {
            let spent = self.spent;
            let share = |ns: u64| ns as f64 / over_ns;
            let shares = CostShares {
                handler: share(spent.handler_ns),
                wall: share(spent.wall_ns),
                other: share(spent.other_ns),
            };
            self.end_period();
            self.rise(config, load, Some((&shares, budget * RISE_TARGET)));
        }
        is_over
    }

    /// Without the limits of the budget, for a burst. Shedding stays.
    pub fn without_budget(&self) -> Self {
        Self { is_shedding: self.is_shedding, calm: self.calm, ..Self::default() }
    }

    /// The limits from before a burst, at its end. Costs are accounted from now on.
    pub fn after_burst(&self, before: &Self) -> Self {
        let (spent, spent_over_ns) = (OverheadCost::default(), 0);
        Self { is_shedding: self.is_shedding, calm: self.calm, spent, spent_over_ns, ..*before }
    }

    fn end_period(&mut self) {
        (self.spent, self.spent_over_ns) = (OverheadCost::default(), 0);
        self.unchanged = self.unchanged.saturating_add(1);
        if self.unchanged >= MAX_WAIT {
            self.wait = 1;
        }
    }

    /// Lowers the rates, and the number of windows if these cost more than half of the target.
    fn lower(&mut self, config: &Config, load: &LoadInterval, shares: &CostShares, target: f64) {
        let available = (target - shares.other).max(0.0);
        let cpu = shares.handler.min((available - shares.wall).max(0.75 * available));
        let wall = shares.wall.min((available - cpu).max(0.0));
        let ratio = |allowed: f64, cost: f64| if cost > 0.0 { allowed / cost } else { 1.0 };
        self.cpu_factor = (self.cpu_factor * ratio(cpu, shares.handler)).max(min_cpu_factor(config));
        let wall_floor = 1.0 / f64::from(pace::rate_hz(config));
        let was_at_floor = self.wall_factor <= wall_floor;
        self.wall_factor = match (self.wall_factor * ratio(wall, shares.wall)).max(wall_floor) {
            _ if was_at_floor && shares.wall > wall => {
                self.paused_wall_share = shares.wall / load.threads.max(1) as f64;
                0.0
            }
            factor => factor.min(self.wall_factor),
        };
        if shares.other > target / 2.0 {
            let needed = f64::from(self.upload_factor) * shares.other / (target / 2.0);
            let needed = (needed.ceil() as u32).max(self.upload_factor + 1);
            self.upload_factor = needed.min(MAX_UPLOAD_FACTOR);
        }
        if self.has_risen {
            self.wait = (self.wait * 2).min(MAX_WAIT);
        }
        self.end_period();
        (self.unchanged, self.has_risen) = (0, false);
    }

    /// Raises one limit where the predicted cost stays below the target. `budget`: cost and target.
    fn rise(&mut self, config: &Config, load: &LoadInterval, budget: Option<(&CostShares, f64)>) {
        if self.unchanged < self.wait || self.is_shedding {
            return;
        }
        let rise_of = |part: fn(&CostShares) -> f64| match budget {
            Some((shares, target)) => {
                let left = target - shares.total();
                let rise = if part(shares) > 0.0 { 1.0 + left / part(shares) } else { MAX_RISE };
                (left > 0.0 && rise >= MIN_RISE).then_some(rise.min(MAX_RISE))
            }
            None => Some(MAX_RISE),
        };
        let max_factor = max_cpu_factor(config, load);
        let before = *self;
        if self.cpu_factor < max_factor {
            if let Some(rise) = rise_of(|shares| shares.handler) {
                self.cpu_factor = if self.cpu_factor < 1.0 {
                    (self.cpu_factor * rise).min(1.0)
                } else {
                    (self.cpu_factor * rise.min(MAX_ADAPTIVE_RISE)).min(max_factor)
                };
            }
        }
        if *self == before && self.upload_factor > 1 {
            let is_within = |less: &u32| {
                let growth = f64::from(self.upload_factor) / f64::from(*less) - 1.0;
                budget.is_none_or(|(shares, target)| shares.total() + shares.other * growth <= target)
            };
            self.upload_factor = (1..self.upload_factor).find(is_within).unwrap_or(self.upload_factor);
        }
        if *self == before && self.wall_factor == 0.0 {
            let share = self.paused_wall_share * load.threads as f64;
            if budget.is_none_or(|(shares, target)| shares.total() + share <= target) {
                self.wall_factor = 1.0 / f64::from(pace::rate_hz(config));
            }
        } else if *self == before && self.wall_factor < 1.0 {
            if let Some(rise) = rise_of(|shares| shares.wall) {
                self.wall_factor = (self.wall_factor * rise).min(1.0);
            }
        }
        if *self != before {
            (self.unchanged, self.has_risen) = (0, true);
        }
    }

    fn shed(&mut self, config: &Config, load: &LoadInterval) {
        let threshold = config.shedding_threshold();
        let is_above = |part: f64| threshold.is_some_and(|threshold| load.highest_use() > threshold * part);
        if is_above(1.0) {
            (self.is_shedding, self.calm) = (true, 0);
        } else if self.is_shedding {
            self.calm = if is_above(RELEASE) { 0 } else { self.calm + 1 };
            self.is_shedding = self.calm < CALM_INTERVALS && threshold.is_some();
        }
    }

    /// Returns to the base rate above a threshold of the adaptive rate, and when it was turned off.
    fn end_adaptive_rate(&mut self, config: &Config, load: &LoadInterval) {
        let is_above = load.highest_use() > config.adaptive_threshold;
        let max_factor = if is_above || self.is_shedding { 1.0 } else { rate_ratio(config) };
        self.cpu_factor = self.cpu_factor.min(max_factor);
    }

    /// The effective upload interval.
    fn upload_ns(&self, config: &Config) -> u64 {
        let configured_ns = config.upload_interval.as_nanos() as u64;
        (configured_ns * u64::from(self.upload_factor)).min(configured_ns.max(MAX_UPLOAD_NS))
    }
}

/// Largest factor of the rate that the load allows.
fn max_cpu_factor(config: &Config, load: &LoadInterval) -> f64 {
    if load.highest_use() <= config.adaptive_threshold * RELEASE {
        rate_ratio(config)
    } else {
        1.0
    }
}

/// `sample_rate_max` as a factor of `sample_rate`, at least 1.
fn rate_ratio(config: &Config) -> f64 {
    config.sample_rate_max.map_or(1.0, |max| (f64::from(max) / f64::from(config.sample_rate)).max(1.0))
}

fn min_cpu_factor(config: &Config) -> f64 {
    f64::from(MIN_RATE_HZ.min(config.sample_rate)) / f64::from(config.sample_rate)
}
