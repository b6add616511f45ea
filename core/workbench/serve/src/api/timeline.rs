//! `/api/timeline`: weight over time in equal steps, in all and by the value of a label or by type. Gauges are states: their steps
//! have the mean of the time for which there are windows, and none without any.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{json, Map, Value};
use spanprof_profile::is_gauge_type;
use spanprof_read::query::{Detail, Filter, TypeSummary};

use super::request::{ms, summaries, windows, ApiRequest, ApiResult};
use super::stack_view::StackView;
use crate::files::file_names::{HOURS, LEVELS_MS};
use crate::files::window::StoredWindow;
use crate::query::label_groups;

/// Largest number of steps.
const STEPS: u64 = 120;
/// Windows are seconds long.
const MIN_STEP_NS: u64 = 1_000_000_000;
/// Range from which a timeline of selected stacks has steps of a minute: they are read from roll-ups, not from the windows.
const MINUTES_FROM_NS: u64 = 30 * 60 * 1_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;
/// Largest number of steps in which the extremes of a gauge are looked for.
const FINE_STEPS: u64 = 20_000;
/// Types of which each excludes the others at any moment of a thread, so that they add up.
const DISJOINT_TYPES: [&str; 2] = ["cpu", "off_cpu"];
/// Types whose time is also CPU time or time off the CPU: a thread that waits for a lock is off the CPU, and a blocked event loop
/// computes or waits.
const CONTAINED_TYPES: [&str; 3] = ["delay", "gc", "event_loop_lag"];

/// What the series of a timeline are.
enum SeriesKey<'k> {
    None,
    /// The values of a label, which the summaries have as their services.
    Label(&'k str),
    Type,
}

/// Steps of equal length, Unix nanoseconds.
#[derive(Clone, Copy)]
struct Steps {
    from: u64,
    to: u64,
    length: u64,
}

/// `by=type` has a series for each type of [`DISJOINT_TYPES`] and
/// [`CONTAINED_TYPES`] instead of the type of the filter.
pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    let ApiRequest { state, view, .. } = request;
    let is_by_type = match request.non_empty("by") {
        None => false,
        Some("type") => true,
        Some(other) => return Err(format!("`by`: expected type, got `{other}`").into()),
    };
    let mut filter = request.filter.clone();
    if is_by_type {
        filter.type_name = None;
    }
    let key = match view.group() {
        _ if is_by_type => SeriesKey::Type,
        Some(key) => SeriesKey::Label(key),
        None => SeriesKey::None,
    };
    let windows = windows(state, &filter);
    let steps = Steps::of_windows(&windows, &filter, view);
    let selects_samples = !filter.labels.is_empty() || filter.trace_id.is_some() || filter.span_id.is_some();
    let (mut timeline, resolution_ms) = if selects_samples || matches!(key, SeriesKey::Label(_)) || view.has_filters() {
        let detail = match key {
            SeriesKey::Label(key) => Detail::OneLabel(key.to_owned()),
            _ => Detail::Stacks,
        };
        let result = state.store.query_in_steps(&filter, ms(steps.length), detail, view.selection());
        let members = members(result.summaries.iter(), steps, &key);
        (result.with_completeness(members), LEVELS_MS[HOURS])
    } else {
        // Labels, links and stacks are not in the index; hours have the totals of their minutes there.
        (Value::Object(members(summaries(&windows, &filter), steps, &key)), LEVELS_MS[0])
    };
    if windows.iter().any(|window| window.is_rollup) && resolution_ms > ms(steps.length) {
        timeline["resolution_ms"] = resolution_ms.into();
    }
    Ok(timeline.into())
}

fn members<'a>(all: impl Iterator<Item = &'a TypeSummary>, steps: Steps, key: &SeriesKey) -> Map<String, Value> {
    let is_by_type = matches!(key, SeriesKey::Type);
    let is_of_series = |name: &str| DISJOINT_TYPES.contains(&name) || CONTAINED_TYPES.contains(&name);
    let all: Vec<&TypeSummary> = all
        // A gauge without samples is 0.
        .filter(|summary| summary.samples > 0 || is_gauge_type(&summary.type_name))
        .filter(|summary| !is_by_type || is_of_series(&summary.type_name))
        .collect();
    let is_gauge = all.first().is_some_and(|summary| is_gauge_type(&summary.type_name));
    let state = is_gauge.then(|| GaugeState::new(steps, &all));
    let totals = |summaries: &[&TypeSummary]| match &state {
        Some(state) => json!(state.means(summaries)),
        None => json!(steps.totals(summaries)),
    };
    let mut added = all.clone();
    let mut series = None;
    match key {
        SeriesKey::None => {}
        SeriesKey::Label(key) => {
            let mut values: BTreeMap<String, (i64, Vec<&TypeSummary>)> = BTreeMap::new();
            for summary in all.iter().filter(|summary| summary.samples > 0) {
                let (weight, summaries) = values.entry(summary.service.clone()).or_default();
                *weight = weight.saturating_add(summary.total);
                summaries.push(summary);
            }
            let groups = label_groups::groups(key, values).into_iter();
            series = Some(
                groups
                    .map(|(value, summaries)| json!({"value": value, "totals": totals(&summaries)}))
                    .collect::<Value>(),
            );
        }
        SeriesKey::Type => {
            let has_off_cpu = all.iter().any(|summary| summary.type_name == "off_cpu");
            // Waits for locks are the only known time off the CPU without a profile of it.
            let is_added = |name: &str| DISJOINT_TYPES.contains(&name) || (name == "delay" && !has_off_cpu);
            added.retain(|summary| is_added(&summary.type_name));
            let of_types = DISJOINT_TYPES.iter().chain(&CONTAINED_TYPES).filter_map(|name| {
                let summaries: Vec<_> = all.iter().filter(|summary| summary.type_name == *name).copied().collect();
                (!summaries.is_empty())
                    .then(|| json!({"value": name, "added": is_added(name), "totals": totals(&summaries)}))
            });
            series = Some(of_types.collect());
        }
    }
    let mut members = Map::from_iter([
        ("from_ms".to_owned(), ms(steps.from).into()),
        ("to_ms".to_owned(), ms(steps.to).into()),
        ("step_ms".to_owned(), ms(steps.length).into()),
        ("unit".to_owned(), all.first().map_or("", |summary| &summary.unit).into()),
        ("gauge".to_owned(), is_gauge.into()),
        ("totals".to_owned(), totals(&added)),
    ]);
    if let Some([lowest, last, peak]) = state.and_then(|state| state.extremes(&all)) {
        members.extend(
            [("lowest", lowest), ("last", last), ("peak", peak)].map(|(name, value)| (name.to_owned(), value.into())),
        );
    }
    members.extend(series.map(|series| ("series".to_owned(), series)));
    members
}

impl Steps {
    fn new(from: u64, to: u64) -> Self {
        Steps { from, to, length: to.saturating_sub(from).div_ceil(STEPS).max(MIN_STEP_NS) }
    }

    /// Over the range of the filter, which is open to that of the windows.
    fn of_windows(windows: &[Arc<StoredWindow>], filter: &Filter, view: &StackView) -> Self {
        let from = filter.from_unix_nano.or(windows.iter().map(|window| window.from_unix_nano).min()).unwrap_or(0);
        let to = filter.to_unix_nano.or(windows.iter().map(|window| window.to_unix_nano).max()).unwrap_or(from);
        let steps = Self::new(from, to);
        let is_by_minute = view.has_filters() && to.saturating_sub(from) >= MINUTES_FROM_NS;
        Steps { length: if is_by_minute { steps.length.max(MINUTE_NS) } else { steps.length }, ..steps }
    }

    fn count(self) -> usize {
        self.to.saturating_sub(self.from).div_ceil(self.length) as usize
    }

    /// The interval of a summary within the steps: both ends are clamped to the range, which bounds the number of steps.
    fn interval(self, summary: &TypeSummary) -> (u64, u64) {
        let end = summary.to_unix_nano.max(summary.from_unix_nano.saturating_add(1));
        (summary.from_unix_nano.max(self.from), end.min(self.to))
    }

    /// An interval divided by steps: the number of each, and the start and end of the part in it.
    fn parts(self, (start, end): (u64, u64)) -> impl Iterator<Item = (usize, u64, u64)> {
        let mut time = start;
        std::iter::from_fn(move || {
            let nth = (time < end).then(|| (time - self.from) / self.length)?;
            let next = self.from.saturating_add((nth + 1).saturating_mul(self.length)).min(end);
            Some((nth as usize, std::mem::replace(&mut time, next), next))
        })
    }

    /// The weight of each step. A window's weight is spread evenly over its duration.
    fn totals(self, all: &[&TypeSummary]) -> Vec<i64> {
        let mut totals = vec![0i64; self.count()];
        for summary in all {
            let duration = summary.to_unix_nano.saturating_sub(summary.from_unix_nano).max(1);
            let interval = self.interval(summary);
            let mut distributed = 0;
            for (nth, _, end) in self.parts(interval) {
                // From the cumulative share, so that rounding errors do not accumulate.
                let cumulative = i128::from(summary.total) * i128::from(end - interval.0) / i128::from(duration);
                if let Some(total) = totals.get_mut(nth) {
                    *total = total.saturating_add((cumulative - distributed) as i64);
                }
                distributed = cumulative;
            }
        }
        totals
    }
}

/// The steps of a gauge, and the time of each for which there are windows.
struct GaugeState {
    steps: Steps,
    /// Nanoseconds.
    covered: Vec<u64>,
}

impl GaugeState {
    fn new(steps: Steps, all: &[&TypeSummary]) -> Self {
        Self::until(steps, all, complete_until(all))
    }

    /// Without what is later than `end`, Unix nanoseconds.
    fn until(steps: Steps, all: &[&TypeSummary], end: u64) -> Self {
        let mut covered = vec![0; steps.count()];
        let steps = Steps { to: steps.to.min(end), ..steps };
        let mut intervals: Vec<_> = all.iter().map(|summary| steps.interval(summary)).collect();
        intervals.sort_unstable();
        let mut last = steps.from;
        for (start, end) in intervals {
            for (nth, start, end) in steps.parts((start.max(last), end)) {
                covered[nth] += end - start;
            }
            last = last.max(end);
        }
        GaugeState { steps, covered }
    }

    /// The mean of each step over the time for which there are windows of any process; windows of several processes add up.
    fn means(&self, summaries: &[&TypeSummary]) -> Vec<Option<i64>> {
        let mut sums = vec![0i128; self.covered.len()];
        for summary in summaries {
            for (nth, start, end) in self.steps.parts(self.steps.interval(summary)) {
                sums[nth] += i128::from(summary.total) * i128::from(end - start);
            }
        }
        let mean = |(sum, covered): (i128, &u64)| (*covered > 0).then(|| (sum / i128::from(*covered)) as i64);
        sums.into_iter().zip(&self.covered).map(mean).collect()
    }

    /// The lowest, the last and the highest value: of steps short enough that each window has one of its own.
    fn extremes(&self, all: &[&TypeSummary]) -> Option<[i64; 3]> {
        let Steps { from, to, length } = self.steps;
        let shortest = all.iter().map(|summary| summary.to_unix_nano.saturating_sub(summary.from_unix_nano)).min()?;
        let fine = (shortest / 2).clamp(MIN_STEP_NS, length).max(to.saturating_sub(from) / FINE_STEPS);
        let means = Self::until(Steps { from, to, length: fine }, all, to).means(all);
        let values = || means.iter().copied().flatten();
        Some([values().min()?, values().last()?, values().max()?])
    }
}

/// The time until which all processes have sent their windows, Unix nanoseconds. After it, the sum of those that have would look
/// like a decrease. Windows do not name their process: as many windows as in the middle of the newest one's predecessor.
fn complete_until(all: &[&TypeSummary]) -> u64 {
    let Some(newest) = all.iter().max_by_key(|summary| summary.to_unix_nano) else { return 0 };
    let duration = newest.to_unix_nano.saturating_sub(newest.from_unix_nano);
    let middle = newest.from_unix_nano.saturating_sub(duration / 2);
    let late: Vec<_> = all.iter().filter(|summary| summary.to_unix_nano > middle).collect();
    let count = |time: u64| late.iter().filter(|it| (it.from_unix_nano..it.to_unix_nano).contains(&time)).count();
    let expected = count(middle);
    let ends = late.iter().map(|summary| summary.to_unix_nano);
    ends.filter(|end| count(end - 1) >= expected).max().unwrap_or(newest.to_unix_nano)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn window(type_name: &str, start_s: u64, total: i64) -> TypeSummary {
        TypeSummary {
            service: String::new(),
            type_name: type_name.to_owned(),
            unit: "bytes".to_owned(),
            samples: usize::from(total != 0),
            total,
            from_unix_nano: start_s * SECOND,
            to_unix_nano: (start_s + 10) * SECOND,
        }
    }

    fn timeline(all: &[TypeSummary], to_s: u64, key: &SeriesKey) -> Map<String, Value> {
        members(all.iter(), Steps::new(0, to_s * SECOND), key)
    }

    /// The totals of every step of 1,200 seconds.
    fn of_ten_seconds(all: &[TypeSummary]) -> Vec<Option<i64>> {
        let members = timeline(all, 1200, &SeriesKey::None);
        assert_eq!(members["step_ms"], 10_000);
        members["totals"].as_array().unwrap().iter().map(Value::as_i64).collect()
    }

    #[test]
    fn a_gauge_has_no_value_where_no_window_exists_and_0_where_its_window_is_empty() {
        let windows =
            [(5, 100), (15, 300), (25, 0), (55, 50)].map(|(start_s, total)| window("inuse_space", start_s, total));
        let totals = of_ten_seconds(&windows);
        assert_eq!(totals[..7], [Some(100), Some(200), Some(150), Some(0), None, Some(50), Some(50)]);
        assert!(totals[7..].iter().all(Option::is_none));
        let members = timeline(&windows, 1200, &SeriesKey::None);
        assert_eq!((&members["lowest"], &members["last"], &members["peak"]), (&json!(0), &json!(50), &json!(300)));
    }

    #[test]
    fn weights_that_add_up_are_0_where_no_window_exists() {
        let windows = [(0, 100), (25, 60)].map(|(start_s, total)| window("alloc_space", start_s, total));
        assert_eq!(of_ten_seconds(&windows)[..5], [Some(100), Some(0), Some(30), Some(30), Some(0)]);
    }

    #[test]
    fn the_peak_of_a_gauge_is_that_of_a_window_within_a_longer_step() {
        let windows: Vec<_> =
            (0..360).map(|nth| window("inuse_space", 10 * nth, 100 + i64::from(nth == 100))).collect();
        let members = timeline(&windows, 3600, &SeriesKey::None);
        assert_eq!((&members["step_ms"], &members["peak"]), (&json!(30_000), &json!(101)));
        assert!(members["totals"].as_array().unwrap().iter().all(|total| *total == 100));
    }

    #[test]
    fn a_process_whose_newest_window_has_not_arrived_is_no_decrease() {
        let process = |phase: u64, count: u64| (0..count).map(move |nth| window("inuse_space", phase + 10 * nth, 100));
        let windows: Vec<_> = process(0, 4).chain(process(3, 3)).chain(process(6, 3)).collect();
        // The second process has sent its windows until 33 s, the third until 36 s, the first until 40 s.
        let members = timeline(&windows, 120, &SeriesKey::None);
        assert_eq!((&members["last"], &members["peak"]), (&json!(300), &json!(300)));
        let totals: Vec<_> = members["totals"].as_array().unwrap().iter().map(Value::as_i64).collect();
        assert_eq!((totals[32], totals[33]), (Some(300), None));
    }

    #[test]
    fn a_process_that_ended_is_a_decrease() {
        let mut windows: Vec<_> = (0..6).map(|nth| window("inuse_space", 10 * nth, 100)).collect();
        windows.extend((0..3).map(|nth| window("inuse_space", 10 * nth, 50)));
        let members = timeline(&windows, 120, &SeriesKey::None);
        assert_eq!((&members["last"], &members["lowest"]), (&json!(100), &json!(100)));
        let totals: Vec<_> = members["totals"].as_array().unwrap().iter().map(Value::as_i64).collect();
        assert_eq!((totals[29], totals[30], totals[59], totals[60]), (Some(150), Some(100), Some(100), None));
    }

    #[test]
    fn the_series_of_a_gauge_add_up_to_its_total() {
        let mut windows: Vec<_> = (0..4).map(|nth| window("inuse_space", 10 * nth, 90)).collect();
        for (nth, age) in ["old", "new", "", "survived"].into_iter().enumerate() {
            windows[nth].service = age.to_owned();
        }
        windows.push(TypeSummary { service: "new".to_owned(), ..window("inuse_space", 0, 10) });
        let members = timeline(&windows, 120, &SeriesKey::Label("age"));
        let series = members["series"].as_array().unwrap();
        let values: Vec<_> = series.iter().map(|series| series["value"].as_str().unwrap()).collect();
        assert_eq!(values, ["new", "survived", "old", ""], "sorted by age");
        for (nth, total) in members["totals"].as_array().unwrap().iter().enumerate() {
            let parts: Vec<_> = series.iter().map(|series| series["totals"][nth].as_i64()).collect();
            let sum = parts.iter().copied().collect::<Option<Vec<_>>>().map(|parts| parts.iter().sum::<i64>());
            assert_eq!(sum, total.as_i64(), "step {nth}: {parts:?}");
        }
    }

    #[test]
    fn types_whose_time_is_contained_in_others_are_not_added() {
        let with = |types: &[&str]| {
            let windows: Vec<_> = types.iter().map(|name| window(name, 0, 1000)).collect();
            let members = timeline(&windows, 1200, &SeriesKey::Type);
            let series = members["series"].as_array().unwrap().iter();
            let added: Vec<_> = series.filter(|series| series["added"] == true).map(|it| it["value"].clone()).collect();
            (members["totals"][0].as_i64().unwrap(), added)
        };
        assert_eq!(with(&["wall", "cpu", "off_cpu", "delay", "gc"]), (2000, vec!["cpu".into(), "off_cpu".into()]));
        assert_eq!(
            with(&["cpu", "delay", "event_loop_lag", "alloc_space"]),
            (2000, vec!["cpu".into(), "delay".into()])
        );
    }
}
