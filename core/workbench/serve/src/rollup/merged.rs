//! Contents of a roll-up: the merged samples of consecutive windows, with less detail. Built and read by `stored`.
//!
//! Kept: stacks, weights, labels, resources, and the links of the [`MAX_SPANS`] heaviest spans of each type.
//! Dropped: timestamps, links of the other spans, and labels with more than [`MAX_LABEL_VALUES`] values. Of gauges only the
//! newest window of a process is kept, as in every merge.
//!
//! The samples are ordinary OTLP, which any reader merges with windows. What they lack is in a second file beside it, the
//! [`RollupFacts`]; without that file, they are those of the samples. A third file has the sums of the spans.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use spanprof_profile::{transform, AttributeId, AttributeSetId, Link, LinkId, Profile, ProfilesData};
use spanprof_read::query::SpanTotals;

use crate::files::directory;
use crate::files::rollup_facts::RollupFacts;
use crate::files::span_file;

/// Spans per type whose links are kept, heaviest first, so that slow requests can be explained.
const MAX_SPANS: usize = 200;
/// A label with more values loses them: each value multiplies the samples.
const MAX_LABEL_VALUES: usize = 100;
/// Merged windows.
#[derive(Debug, Default)]
pub(crate) struct Rollup {
    pub data: ProfilesData,
    pub facts: RollupFacts,
    /// Sums of the spans; empty after [`Rollup::read`].
    pub spans: SpanTotals,
}

impl Rollup {
    /// Reads a window or a roll-up, to be merged into another.
    pub(crate) fn read_with_spans(path: &Path) -> Result<Self, String> {
        let mut rollup = Self::read(path)?;
        match span_file::read(path) {
            Some(parts) => rollup.spans.add_parts(&parts, None, None),
            None => rollup.spans.add(&rollup.data),
        }
        Ok(rollup)
    }

    /// Reads a window or a roll-up.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let data = directory::read_profiles(path)?;
        let facts = RollupFacts::read(path).unwrap_or_else(|| RollupFacts::of_window(&data));
        Ok(Rollup { data, facts, spans: SpanTotals::new(None) })
    }

    /// Adds later or earlier windows.
    pub(crate) fn add(&mut self, parts: Vec<Rollup>) {
        self.data = transform::merge(std::iter::once(&self.data).chain(parts.iter().map(|part| &part.data)));
        for part in parts {
            self.facts.add(part.facts);
            self.spans.add_parts(&part.spans.parts(usize::MAX), None, None);
        }
    }

    /// With the detail of a roll-up.
    pub(crate) fn reduced(mut self) -> Self {
        let spans = heaviest_spans(&self.data);
        let omitted_labels = &mut self.facts.omitted_labels;
        omitted_labels.extend(labels_of_many_values(&self.data));
        let mut attribute_sets: HashMap<AttributeSetId, AttributeSetId> = HashMap::new();
        let ProfilesData { dictionary, resources } = &mut self.data;
        for profile in resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            let spans = spans.get(profile.type_name());
            for sample in &mut profile.samples {
                sample.values = vec![sample.total()];
                sample.timestamps_unix_nano = Vec::new();
                if !spans.is_some_and(|spans| spans.contains(&sample.link)) {
                    sample.link = LinkId::EMPTY;
                }
                sample.attributes = *attribute_sets.entry(sample.attributes).or_insert_with(|| {
                    let ids = dictionary.get_attribute_set(sample.attributes).to_vec();
                    let is_kept = |id: &AttributeId| !omitted_labels.contains(dictionary.get_attribute(*id).key);
                    let kept: Vec<_> = ids.into_iter().filter(is_kept).collect();
                    dictionary.attribute_set(&kept)
                });
            }
        }
        // Merges the samples that have become equal, and drops the entries that no sample refers to.
        self.data = transform::merge([&self.data]);
        self
    }
}

fn heaviest_spans(data: &ProfilesData) -> HashMap<String, HashSet<LinkId>> {
    let mut weights: HashMap<&str, HashMap<LinkId, i64>> = HashMap::new();
    for (_, profile) in data.profiles() {
        let weights = weights.entry(Profile::type_name(profile)).or_default();
        for sample in profile.samples.iter().filter(|sample| !sample.link.is_empty()) {
            let weight = weights.entry(sample.link).or_default();
            *weight = weight.saturating_add(profile.weight(sample));
        }
    }
    let heaviest = |spans: HashMap<LinkId, i64>| {
        let mut spans: Vec<(i64, Link, LinkId)> =
            spans.into_iter().map(|(id, weight)| (-weight, data.dictionary.get_link(id), id)).collect();
        spans.sort_unstable_by_key(|(weight, link, _)| (*weight, link.trace_id, link.span_id));
        spans.into_iter().take(MAX_SPANS).map(|(_, _, id)| id).collect()
    };
    weights.into_iter().map(|(name, spans)| (name.to_owned(), heaviest(spans))).collect()
}

fn labels_of_many_values(data: &ProfilesData) -> Vec<String> {
    let mut values: HashMap<&str, HashSet<AttributeId>> = HashMap::new();
    let mut seen = HashSet::new();
    for sample in data.profiles().flat_map(|(_, profile)| &profile.samples) {
        if seen.insert(sample.attributes) {
            for id in data.dictionary.get_attribute_set(sample.attributes) {
                values.entry(data.dictionary.get_attribute(*id).key).or_default().insert(*id);
            }
        }
    }
    values.into_iter().filter(|(_, ids)| ids.len() > MAX_LABEL_VALUES).map(|(key, _)| key.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{Attribute, ResourceProfiles, Sample, Value, ValueType};
    use std::collections::BTreeSet;

    /// One sample for each (label value, span, weight), with timestamps.
    fn window(samples: &[(u64, u64, i64)]) -> ProfilesData {
        let mut data = ProfilesData::default();
        let mut sample = |(label, span, weight): &(u64, u64, i64)| {
            let ids = [
                data.dictionary.attribute("request", Value::Int(*label as i64), ""),
                data.dictionary.attribute("endpoint", Value::String("/cart"), ""),
            ];
            let span_id = span.to_be_bytes();
            Sample {
                attributes: data.dictionary.attribute_set(&ids),
                link: if *span == 0 {
                    LinkId::EMPTY
                } else {
                    data.dictionary.link(Link { trace_id: [1; 16], span_id })
                },
                values: vec![*weight],
                timestamps_unix_nano: vec![5],
                ..Sample::default()
            }
        };
        let samples = samples.iter().map(&mut sample).collect();
        let profile = Profile { sample_type: ValueType::new("wall", "nanoseconds"), samples, ..Profile::default() };
        let resource = vec![Attribute::string("service.name", "shop")];
        data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
        data
    }

    fn of_window(data: ProfilesData) -> Rollup {
        Rollup { facts: RollupFacts::of_window(&data), data, ..Rollup::default() }
    }

    fn rolled_up(parts: Vec<Rollup>) -> Rollup {
        let mut rollup = Rollup::default();
        rollup.add(parts);
        rollup.reduced()
    }

    #[test]
    fn a_rollup_keeps_the_total_the_heaviest_spans_and_the_counts_of_its_windows() {
        let first = window(&(1..=300).map(|span| (1, span, span as i64)).collect::<Vec<_>>());
        let second = window(&[(1, 300, 1000), (1, 0, 7)]);
        let rollup = rolled_up(vec![of_window(first), of_window(second)]);
        let profile = &rollup.data.resources[0].profiles[0];
        assert_eq!(profile.samples.iter().map(Sample::total).sum::<i64>(), 300 * 301 / 2 + 1007);
        assert!(profile.samples.iter().all(|sample| sample.timestamps_unix_nano.is_empty()));
        let linked = profile.samples.iter().filter(|sample| !sample.link.is_empty()).count();
        assert_eq!((linked, profile.samples.len(), rollup.data.dictionary.links().len()), (200, 201, 201));
        assert_eq!(rollup.facts.counts[&("shop".to_owned(), "wall".to_owned())], 302);
    }

    #[test]
    fn counts_and_omitted_labels_add_up_over_levels() {
        let many = window(&(0..101).map(|label| (label, 0, 1)).collect::<Vec<_>>());
        let minute = || rolled_up(vec![of_window(many.clone())]);
        let hour = rolled_up(vec![minute(), of_window(window(&[(1, 0, 1)])), minute()]);
        assert_eq!(hour.facts.counts[&("shop".to_owned(), "wall".to_owned())], 203);
        assert_eq!(hour.facts.omitted_labels, BTreeSet::from(["request".to_owned()]));
        let [sample] = &hour.data.resources[0].profiles[0].samples[..] else { panic!("one sample") };
        let labels: Vec<_> = hour.data.dictionary.attributes_of(sample.attributes).map(|label| label.key).collect();
        assert_eq!((sample.total(), labels), (203, vec!["endpoint"]));
    }
}
