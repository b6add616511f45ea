//! What a roll-up knows of its windows beside their samples, as the JSON of its second file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{json, Value};
use spanprof_profile::{is_gauge_type, ProfilesData, ResourceProfiles};
use spanprof_read::query::{self, TypeSummary};

use super::directory;
use super::file_names::FACTS_SUFFIX;

/// Resolution of [`RollupFacts::minutes`].
const MINUTE_NS: u64 = 60_000_000_000;

/// Number of observations by service and type.
pub(crate) type SampleCounts = BTreeMap<(String, String), usize>;

/// Adds the numbers of other samples.
pub(crate) fn add_counts(counts: &mut SampleCounts, others: &SampleCounts) {
    for (key, count) in others {
        match counts.get_mut(key) {
            Some(sum) => *sum += count,
            None => drop(counts.insert(key.clone(), *count)),
        }
    }
}

/// Facts about the merged windows that the merged samples lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RollupFacts {
    /// Number of windows.
    pub windows: usize,
    /// Keys of the labels that the samples have lost.
    pub omitted_labels: BTreeSet<String>,
    pub counts: SampleCounts,
    /// Totals of each minute in which windows start, for a timeline. Those of a gauge are means.
    pub minutes: Vec<TypeSummary>,
}

impl RollupFacts {
    /// The facts beside a roll-up; `None` for a window, and if the file is missing or corrupt.
    pub(crate) fn read(rollup: &Path) -> Option<Self> {
        Self::from_json(&directory::read_json_beside(rollup, FACTS_SUFFIX)?)
    }

    /// Of one window, which lacks nothing.
    pub(crate) fn of_window(data: &ProfilesData) -> Self {
        RollupFacts {
            windows: 1,
            omitted_labels: BTreeSet::new(),
            counts: counts(&data.resources),
            minutes: by_minute(query::types(data)),
        }
    }

    /// Adds the facts of other windows.
    pub(crate) fn add(&mut self, other: RollupFacts) {
        self.windows += other.windows;
        self.omitted_labels.extend(other.omitted_labels);
        add_counts(&mut self.counts, &other.counts);
        self.minutes.extend(other.minutes);
        self.minutes = by_minute(std::mem::take(&mut self.minutes));
    }

    /// Sets the time range of the summaries of gauges to that of all windows, of which the samples of gauges are the newest.
    pub(crate) fn widen_gauges(&self, summaries: &mut [TypeSummary], service: Option<&str>) {
        for summary in summaries.iter_mut().filter(|summary| is_gauge_type(&summary.type_name)) {
            for minute in self.minutes.iter().filter(|minute| service.is_none_or(|name| name == minute.service)) {
                if minute.type_name == summary.type_name {
                    summary.from_unix_nano = summary.from_unix_nano.min(minute.from_unix_nano);
                    summary.to_unix_nano = summary.to_unix_nano.max(minute.to_unix_nano);
                }
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let counts = self.counts.iter().map(|((service, type_name), count)| json!([service, type_name, count]));
        let minutes = self.minutes.iter().map(|it| {
            json!([it.service, it.type_name, it.unit, it.samples, it.total, it.from_unix_nano, it.to_unix_nano])
        });
        json!({
            "windows": self.windows, "omitted_labels": self.omitted_labels,
            "counts": counts.collect::<Value>(), "minutes": minutes.collect::<Value>(),
        })
    }

    /// `None` for another form.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let counts = value["counts"].as_array()?.iter();
        let counts = counts.map(|row| Some(((text(&row[0])?, text(&row[1])?), row[2].as_u64()? as usize)));
        let minutes = value["minutes"].as_array()?.iter().map(|row| {
            Some(TypeSummary {
                service: text(&row[0])?,
                type_name: text(&row[1])?,
                unit: text(&row[2])?,
                samples: row[3].as_u64()? as usize,
                total: row[4].as_i64()?,
                from_unix_nano: row[5].as_u64()?,
                to_unix_nano: row[6].as_u64()?,
            })
        });
        Some(RollupFacts {
            windows: value["windows"].as_u64()? as usize,
            omitted_labels: value["omitted_labels"].as_array()?.iter().map(text).collect::<Option<_>>()?,
            counts: counts.collect::<Option<_>>()?,
            minutes: minutes.collect::<Option<_>>()?,
        })
    }
}

/// The numbers of observations in `resources`.
pub(crate) fn counts(resources: &[ResourceProfiles]) -> SampleCounts {
    let mut counts = SampleCounts::new();
    for resource in resources {
        for profile in &resource.profiles {
            let key = (resource.service_name().to_owned(), profile.type_name().to_owned());
            let observations = profile.samples.iter().map(|sample| profile.observations(sample).max(0) as usize);
            *counts.entry(key).or_default() += observations.sum::<usize>();
        }
    }
    counts
}

/// One summary for each service, type and minute of the start.
fn by_minute(summaries: Vec<TypeSummary>) -> Vec<TypeSummary> {
    let mut minutes: BTreeMap<(u64, String, String), Vec<TypeSummary>> = BTreeMap::new();
    for it in summaries {
        minutes.entry((it.from_unix_nano / MINUTE_NS, it.service.clone(), it.type_name.clone())).or_default().push(it);
    }
    minutes.into_values().filter_map(sum).collect()
}

fn sum(mut parts: Vec<TypeSummary>) -> Option<TypeSummary> {
    let mut sum = parts.pop()?;
    if parts.is_empty() {
        return Some(sum);
    }
    let duration = |it: &TypeSummary| i128::from(it.to_unix_nano.saturating_sub(it.from_unix_nano));
    let mut weighted = i128::from(sum.total) * duration(&sum);
    for part in parts {
        weighted += i128::from(part.total) * duration(&part);
        sum.samples += part.samples;
        sum.total = sum.total.saturating_add(part.total);
        sum.from_unix_nano = sum.from_unix_nano.min(part.from_unix_nano);
        sum.to_unix_nano = sum.to_unix_nano.max(part.to_unix_nano);
    }
    if is_gauge_type(&sum.type_name) {
        sum.total = i64::try_from(weighted / duration(&sum).max(1)).unwrap_or(i64::MAX);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(type_name: &str, start_s: u64, total: i64) -> TypeSummary {
        TypeSummary {
            service: "shop".to_owned(),
            type_name: type_name.to_owned(),
            unit: "bytes".to_owned(),
            samples: 3,
            total,
            from_unix_nano: start_s * 1_000_000_000,
            to_unix_nano: (start_s + 10) * 1_000_000_000,
        }
    }

    fn facts(minutes: Vec<TypeSummary>) -> RollupFacts {
        RollupFacts { windows: minutes.len(), minutes, ..RollupFacts::default() }
    }

    fn rows(facts: &RollupFacts) -> Vec<(u64, u64, i64)> {
        let row = |it: &TypeSummary| (it.from_unix_nano / 1_000_000_000, it.to_unix_nano / 1_000_000_000, it.total);
        facts.minutes.iter().map(row).collect()
    }

    #[test]
    fn totals_of_a_minute_add_up_and_a_gauge_has_its_mean_over_all_levels() {
        for (type_name, totals) in [("alloc_space", [12, 8]), ("inuse_space", [4, 8])] {
            let windows = [(60, 2), (70, 4), (80, 6), (125, 8)];
            let mut minute = RollupFacts::default();
            windows[..3]
                .iter()
                .for_each(|(start_s, total)| minute.add(facts(vec![summary(type_name, *start_s, *total)])));
            let mut hour = RollupFacts::default();
            hour.add(facts(vec![summary(type_name, 125, 8)]));
            hour.add(minute);
            assert_eq!(rows(&hour), [(60, 90, totals[0]), (125, 135, totals[1])]);
            assert_eq!((hour.windows, hour.minutes[0].samples), (4, 9));
        }
    }

    #[test]
    fn the_newest_state_of_a_gauge_counts_for_the_range_of_its_windows() {
        let windows =
            [("inuse_space", 60), ("inuse_space", 110), ("cpu", 50)].map(|(name, start_s)| summary(name, start_s, 1));
        let mut read = vec![summary("inuse_space", 110, 7), summary("cpu", 110, 7)];
        facts(windows.to_vec()).widen_gauges(&mut read, Some("shop"));
        let ranges = |read: &[TypeSummary]| read.iter().map(|it| it.from_unix_nano / 1_000_000_000).collect::<Vec<_>>();
        assert_eq!(ranges(&read), [60, 110]);
        let mut of_another = vec![summary("inuse_space", 110, 7)];
        facts(windows.to_vec()).widen_gauges(&mut of_another, Some("cart"));
        assert_eq!(ranges(&of_another), [110]);
    }

    #[test]
    fn the_gauges_of_two_processes_add_up() {
        let mut both = RollupFacts::default();
        [5, 7].iter().for_each(|total| both.add(facts(vec![summary("inuse_space", 60, *total)])));
        assert_eq!(rows(&both), [(60, 70, 12)]);
    }

    #[test]
    fn facts_are_read_as_they_were_written() {
        let facts = RollupFacts {
            windows: 360,
            omitted_labels: BTreeSet::from(["request\n\"id".to_owned()]),
            counts: SampleCounts::from([(("shop".to_owned(), "cpu".to_owned()), 17)]),
            minutes: vec![summary("cpu", 60, i64::MIN)],
        };
        let text = facts.to_json().to_string();
        assert_eq!(RollupFacts::from_json(&serde_json::from_str(&text).unwrap()), Some(facts));
        assert_eq!(RollupFacts::from_json(&json!({"windows": 1})), None);
    }
}
