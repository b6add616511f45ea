//! Contents of a roll-up: the merged samples of consecutive windows, with less detail. Pure. Built and read by `rollups`.
//!
//! Kept: stacks, weights, labels, resources, and the links of the [`MAX_SPANS`] heaviest spans of each type.
//! Dropped: timestamps, links of the other spans, and labels with more than [`MAX_LABEL_VALUES`] values. Of gauges only the
//! newest window of a process is kept, as in every merge.
//!
//! Attributes of the profiles record what is no longer in the samples: the keys of the dropped labels, and the numbers of
//! samples and of linked samples of the windows, by service and type. [`Rollup::of`] removes these attributes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use spanprof_profile::{transform, AttributeId, AttributeSetId, Link, LinkId, Profile, ProfilesData, Value};

/// Spans per type whose links are kept, heaviest first, so that slow requests can be explained.
const MAX_SPANS: usize = 200;
/// A label with more values loses them: each value multiplies the samples.
const MAX_LABEL_VALUES: usize = 100;
/// Prefix of the attributes; they are on the first profile of each service and type.
const PREFIX: &str = "spanprof.rollup.";

/// Sums over the samples of one service and type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleCounts {
    pub samples: i64,
    pub linked_samples: i64,
    pub linked_weight: i64,
}

impl SampleCounts {
    pub(crate) fn add(&mut self, other: SampleCounts) {
        self.samples = self.samples.saturating_add(other.samples);
        self.linked_samples = self.linked_samples.saturating_add(other.linked_samples);
        self.linked_weight = self.linked_weight.saturating_add(other.linked_weight);
    }
}

/// By service and type.
pub(crate) type CountsByType = BTreeMap<(String, String), SampleCounts>;

/// Merged windows without the attributes of a roll-up.
#[derive(Debug, Default)]
pub(crate) struct Rollup {
    pub data: ProfilesData,
    /// Keys of the labels that the samples have lost.
    pub omitted_labels: BTreeSet<String>,
    /// Of the merged windows.
    pub counts: CountsByType,
}

impl Rollup {
    /// Separates the attributes of a roll-up from the samples; windows have none.
    pub(crate) fn of(mut data: ProfilesData) -> Self {
        let mut rollup = Rollup::default();
        let mut is_rollup = false;
        let ProfilesData { dictionary, resources } = &mut data;
        for resource in resources {
            let service = resource.service_name().to_owned();
            for profile in &mut resource.profiles {
                let ids = dictionary.get_attribute_set(profile.attributes).to_vec();
                let key_of = |id: &AttributeId| dictionary.get_attribute(*id).key.strip_prefix(PREFIX);
                let (own, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| key_of(id).is_some());
                if own.is_empty() {
                    continue;
                }
                is_rollup = true;
                let mut counts = SampleCounts::default();
                for id in own {
                    match (key_of(&id), dictionary.get_attribute(id).value) {
                        (Some("samples"), Value::Int(count)) => counts.samples = count,
                        (Some("linked_samples"), Value::Int(count)) => counts.linked_samples = count,
                        (Some("linked_weight"), Value::Int(weight)) => counts.linked_weight = weight,
                        (Some("omitted_labels"), Value::String(keys)) => {
                            rollup.omitted_labels.extend(keys.lines().map(str::to_owned));
                        }
                        _ => {}
                    }
                }
                rollup.counts.entry((service.clone(), profile.type_name().to_owned())).or_default().add(counts);
                profile.attributes = dictionary.attribute_set(&others);
            }
        }
        if !is_rollup {
            rollup.counts = counts(&data);
        }
        rollup.data = data;
        rollup
    }

    /// Adds later or earlier windows.
    pub(crate) fn add(&mut self, parts: &[Rollup]) {
        self.data = transform::merge(std::iter::once(&self.data).chain(parts.iter().map(|part| &part.data)));
        for part in parts {
            self.omitted_labels.extend(part.omitted_labels.iter().cloned());
            part.counts.iter().for_each(|(key, counts)| self.counts.entry(key.clone()).or_default().add(*counts));
        }
    }

    /// The profiles to be stored.
    pub(crate) fn into_profiles(mut self) -> ProfilesData {
        let spans = heaviest_spans(&self.data);
        self.omitted_labels.extend(labels_of_many_values(&self.data));
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
                    let is_kept = |id: &AttributeId| !self.omitted_labels.contains(dictionary.get_attribute(*id).key);
                    let kept: Vec<_> = ids.into_iter().filter(is_kept).collect();
                    dictionary.attribute_set(&kept)
                });
            }
        }
        // Merges the samples that have become equal, and drops the entries that no sample refers to.
        let mut data = transform::merge([&self.data]);
        let omitted_labels = self.omitted_labels.into_iter().collect::<Vec<_>>().join("\n");
        let ProfilesData { dictionary, resources } = &mut data;
        for resource in resources {
            let service = resource.service_name().to_owned();
            for profile in &mut resource.profiles {
                let Some(counts) = self.counts.remove(&(service.clone(), profile.type_name().to_owned())) else {
                    continue;
                };
                let mut ids = dictionary.get_attribute_set(profile.attributes).to_vec();
                let mut insert = |name: &str, value| {
                    ids.push(dictionary.attribute(&format!("{PREFIX}{name}"), value, ""));
                };
                insert("samples", Value::Int(counts.samples));
                insert("linked_samples", Value::Int(counts.linked_samples));
                insert("linked_weight", Value::Int(counts.linked_weight));
                insert("omitted_labels", Value::String(&omitted_labels));
                profile.attributes = dictionary.attribute_set(&ids);
            }
        }
        data
    }
}

/// Counts of the samples in `data`.
pub(crate) fn counts(data: &ProfilesData) -> CountsByType {
    let mut all = CountsByType::new();
    for (resource, profile) in data.profiles() {
        let counts = all.entry((resource.service_name().to_owned(), profile.type_name().to_owned())).or_default();
        for sample in &profile.samples {
            let is_linked = !sample.link.is_empty();
            counts.add(SampleCounts {
                samples: 1,
                linked_samples: is_linked.into(),
                linked_weight: if is_linked { profile.weight(sample) } else { 0 },
            });
        }
    }
    all
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
    use spanprof_profile::{Attribute, ResourceProfiles, Sample, ValueType};

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

    fn rolled_up(windows: &[ProfilesData]) -> ProfilesData {
        let mut rollup = Rollup::default();
        rollup.add(&windows.iter().cloned().map(Rollup::of).collect::<Vec<_>>());
        rollup.into_profiles()
    }

    #[test]
    fn a_rollup_keeps_the_total_the_heaviest_spans_and_the_counts_of_its_windows() {
        let first = window(&(1..=300).map(|span| (1, span, span as i64)).collect::<Vec<_>>());
        let second = window(&[(1, 300, 1000), (1, 0, 7)]);
        let rollup = Rollup::of(rolled_up(&[first, second]));
        let profile = &rollup.data.resources[0].profiles[0];
        assert_eq!(profile.samples.iter().map(Sample::total).sum::<i64>(), 300 * 301 / 2 + 1007);
        assert!(profile.samples.iter().all(|sample| sample.timestamps_unix_nano.is_empty()));
        let linked = profile.samples.iter().filter(|sample| !sample.link.is_empty()).count();
        assert_eq!((linked, profile.samples.len(), rollup.data.dictionary.links().len()), (200, 201, 201));
        let counts = rollup.counts[&("shop".to_owned(), "wall".to_owned())];
        let linked_weight = 300 * 301 / 2 + 1000;
        assert_eq!(counts, SampleCounts { samples: 302, linked_samples: 301, linked_weight });
        assert_eq!(profile.attributes, AttributeSetId::EMPTY);
    }

    #[test]
    fn counts_and_omitted_labels_add_up_over_levels() {
        let many = window(&(0..101).map(|label| (label, 0, 1)).collect::<Vec<_>>());
        let minute = rolled_up(&[many]);
        let hour = Rollup::of(rolled_up(&[minute.clone(), window(&[(1, 0, 1)]), minute]));
        assert_eq!(hour.counts[&("shop".to_owned(), "wall".to_owned())].samples, 203);
        assert_eq!(hour.omitted_labels, BTreeSet::from(["request".to_owned()]));
        let [sample] = &hour.data.resources[0].profiles[0].samples[..] else { panic!("one sample") };
        let labels: Vec<_> = hour.data.dictionary.attributes_of(sample.attributes).map(|label| label.key).collect();
        assert_eq!((sample.total(), labels), (203, vec!["endpoint"]));
    }
}
