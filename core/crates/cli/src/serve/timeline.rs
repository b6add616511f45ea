//! `/api/timeline`: weight over time in equal steps, in all and by the value of a label.

use std::collections::BTreeMap;

use serde_json::{json, Value};
use spanprof_profile::is_gauge_type;
use spanprof_read::query::{Filter, TypeSummary};

use super::label_groups;

/// Largest number of steps.
pub(super) const STEPS: u64 = 120;

/// Steps of equal length, Unix nanoseconds.
#[derive(Clone, Copy)]
struct Steps {
    from: u64,
    to: u64,
    length: u64,
}

/// A window's weight is spread evenly over its duration. Steps of a gauge have its mean. With `has_series`, the services of the
/// summaries are the values of a label.
pub(super) fn json<'a>(all: impl Iterator<Item = &'a TypeSummary>, filter: &Filter, has_series: bool) -> Value {
    let all: Vec<&TypeSummary> = all.filter(|summary| summary.samples > 0).collect();
    let from = filter.from_unix_nano.or(all.iter().map(|summary| summary.from_unix_nano).min()).unwrap_or(0);
    let to = filter.to_unix_nano.or(all.iter().map(|summary| summary.to_unix_nano).max()).unwrap_or(from);
    // At least a second: windows are seconds long.
    let steps = Steps { from, to, length: to.saturating_sub(from).div_ceil(STEPS).max(1_000_000_000) };
    let mut timeline = json!({
        "from_ms": ms(from), "to_ms": ms(to), "step_ms": ms(steps.length),
        "unit": all.first().map_or("", |summary| &summary.unit),
        "gauge": all.first().is_some_and(|summary| is_gauge_type(&summary.type_name)),
        "totals": steps.totals(&all),
    });
    if has_series {
        let mut values: BTreeMap<String, (i64, Vec<&TypeSummary>)> = BTreeMap::new();
        for summary in all {
            let (weight, summaries) = values.entry(summary.service.clone()).or_default();
            *weight = weight.saturating_add(summary.total);
            summaries.push(summary);
        }
        let series = label_groups::groups(values).into_iter();
        timeline["series"] =
            series.map(|(value, summaries)| json!({"value": value, "totals": steps.totals(&summaries)})).collect();
    }
    timeline
}

/// Milliseconds, which JavaScript numbers represent exactly.
pub(super) fn ms(nanos: u64) -> u64 {
    nanos / 1_000_000
}

impl Steps {
    fn totals(self, all: &[&TypeSummary]) -> Vec<i64> {
        let Steps { from, to, length: step } = self;
        let mut totals = vec![0i64; to.saturating_sub(from).div_ceil(step) as usize];
        for summary in all {
            let duration = summary.to_unix_nano.saturating_sub(summary.from_unix_nano).max(1);
            let weight_interval = if is_gauge_type(&summary.type_name) { step } else { duration };
            // Both ends are clamped to the range, which bounds the number of steps.
            let (start, end) =
                (summary.from_unix_nano.max(from), summary.from_unix_nano.saturating_add(duration).min(to));
            let mut distributed = 0;
            let mut at = start;
            while at < end {
                let nth = (at - from) / step;
                let next = from.saturating_add((nth + 1).saturating_mul(step)).min(end);
                // From the cumulative share, so that rounding errors do not accumulate.
                let cumulative = i128::from(summary.total) * i128::from(next - start) / i128::from(weight_interval);
                if let Some(total) = totals.get_mut(nth as usize) {
                    *total = total.saturating_add((cumulative - distributed) as i64);
                }
                distributed = cumulative;
                at = next;
            }
        }
        totals
    }
}
