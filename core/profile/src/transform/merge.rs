//! Merges windows: samples of equal identity are added up; the merged window is from the first start to the last end. Of a
//! gauge ([`Profile::is_gauge`]) the newest window of each process is kept, and processes are added up.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};

use crate::model::Transfer;
use crate::*;

/// Key of mergeable profiles of one resource and scope: equal types, period and attributes.
#[derive(Clone, PartialEq, Eq, Hash)]
struct MergeKey {
    sample_type: ValueType,
    period_type: ValueType,
    period: i64,
    exact_type: Option<ValueType>,
    attributes: AttributeSetId,
}

/// Identity of a sample. Aggregated and timestamped values are never in one sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SampleIdentity {
    stack: StackId,
    attributes: AttributeSetId,
    link: LinkId,
    has_timestamps: bool,
    has_values: bool,
}

/// A profile whose samples have distinct identities.
#[derive(Default)]
pub(crate) struct Merged {
    profile: Profile,
    /// Positions of the samples by their identity.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

#[derive(Default)]
struct ResourceGroup {
    is_one_process: bool,
    kinds: Vec<Merged>,
    by_kind: HashMap<MergeKey, usize>,
}

/// One request with the samples of all parts. The result is equivalent for every order of the parts.
pub fn merge<'a>(parts: impl IntoIterator<Item = &'a ProfilesData>) -> ProfilesData {
    merge_profiles(parts.into_iter().map(|part| (&part.dictionary, &part.resources[..])))
}

/// As [`merge`], of one part, of which the result has the dictionary.
pub fn merge_owned(mut data: ProfilesData) -> ProfilesData {
    let mut known = HashSet::new();
    for resource in &mut data.resources {
        resource.resource.sort();
        let process = (resource.resource.clone(), resource.scope.clone());
        let is_one_process = resource.is_one_process();
        if !resource
            .profiles
            .iter()
            .all(|profile| known.insert((process.clone(), MergeKey::of(profile, is_one_process))))
        {
            return merge([&data]);
        }
    }
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        let samples = std::mem::take(&mut profile.samples);
        let mut merged = Merged::new(std::mem::take(profile));
        merged.reserve(samples.len());
        samples.into_iter().for_each(|sample| merged.add(sample));
        *profile = merged.into_sorted_profile();
    }
    data
}

/// As [`merge`], of profiles and the dictionary of each part, which may have further entries.
pub fn merge_profiles<'a>(parts: impl IntoIterator<Item = (&'a Dictionary, &'a [ResourceProfiles])>) -> ProfilesData {
    let mut merged = ProfilesData::default();
    let mut groups: Vec<ResourceGroup> = Vec::new();
    let mut known: HashMap<(Vec<Attribute>, Scope), usize> = HashMap::new();
    for (dictionary, resources) in parts {
        if merged.dictionary.lens().stacks == 1 {
            let samples = resources.iter().flat_map(|resource| &resource.profiles).map(|profile| profile.samples.len());
            merged.dictionary.reserve_stacks(dictionary.lens().stacks.min(samples.sum()));
        }
        let mut transfer = Transfer::new(dictionary, &mut merged.dictionary);
        transfer.mappings();
        for resource in resources {
            // Resource attributes are unordered.
            let mut attributes = resource.resource.clone();
            attributes.sort();
            let at = *known.entry((attributes, resource.scope.clone())).or_insert_with_key(|(sorted, scope)| {
                groups.push(ResourceGroup { is_one_process: resource.is_one_process(), ..ResourceGroup::default() });
                merged.resources.push(ResourceProfiles {
                    resource: sorted.clone(),
                    dropped_attributes_count: resource.dropped_attributes_count,
                    scope: scope.clone(),
                    profiles: Vec::new(),
                });
                groups.len() - 1
            });
            for profile in &resource.profiles {
                groups[at].add(profile, &mut transfer);
            }
        }
    }
    for (resource, group) in merged.resources.iter_mut().zip(groups) {
        resource.profiles = group.kinds.into_iter().map(Merged::into_profile).collect();
        resource.profiles.iter_mut().flat_map(|profile| &mut profile.samples).for_each(sort_by_time);
    }
    merged
}

impl MergeKey {
    fn of(profile: &Profile, is_one_process: bool) -> Self {
        // The newest window of a state replaces one with another period, or with another comment on limits of the profiler.
        let is_replaced = is_one_process && profile.is_gauge();
        MergeKey {
            sample_type: profile.sample_type.clone(),
            period_type: profile.period_type.clone(),
            period: if is_replaced { 0 } else { profile.period },
            exact_type: profile.exact_type.clone(),
            attributes: if is_replaced { AttributeSetId::EMPTY } else { profile.attributes },
        }
    }
}

impl ResourceGroup {
    fn add(&mut self, profile: &Profile, transfer: &mut Transfer<'_, '_>) {
        let empty = transfer.empty_profile(profile);
        let is_replaced = self.is_one_process && empty.is_gauge();
        let kind = MergeKey::of(&empty, self.is_one_process);
        let at = *self.by_kind.entry(kind).or_insert(self.kinds.len());
        let merged = match self.kinds.get_mut(at) {
            Some(merged) if is_replaced => {
                let age = |profile: &Profile| (profile.end_unix_nano(), profile.profile_id);
                if age(&empty) <= age(&merged.profile) {
                    return;
                }
                *merged = Merged::new(empty);
                merged
            }
            Some(merged) => {
                merged.profile.widen(&empty);
                merged
            }
            None => {
                self.kinds.push(Merged::new(empty));
                &mut self.kinds[at]
            }
        };
        if merged.index.is_empty() {
            merged.reserve(profile.samples.len());
        }
        for sample in &profile.samples {
            merged.add(transfer.sample(sample));
        }
    }
}

impl Merged {
    /// Starts with `profile`, which must have no samples.
    pub fn new(profile: Profile) -> Self {
        Self { profile, ..Self::default() }
    }

    fn reserve(&mut self, count: usize) {
        let Self { profile, index, hasher } = self;
        profile.samples.reserve(count);
        index.reserve(count, |at| hasher.hash_one(SampleIdentity::of(&profile.samples[*at as usize])));
    }

    /// The profile with the samples added.
    pub fn into_profile(self) -> Profile {
        self.profile
    }

    /// As [`Merged::into_profile`], with the timestamps of each sample in order.
    pub fn into_sorted_profile(mut self) -> Profile {
        self.profile.samples.iter_mut().for_each(sort_by_time);
        self.profile
    }

    pub fn add(&mut self, sample: Sample) {
        let Self { profile: Profile { samples, .. }, index, hasher } = self;
        let identity = SampleIdentity::of(&sample);
        let hash = hasher.hash_one(identity);
        let Some(at) = index.find(hash, |at| SampleIdentity::of(&samples[*at as usize]) == identity) else {
            index.insert_unique(hash, samples.len() as u32, |at| {
                hasher.hash_one(SampleIdentity::of(&samples[*at as usize]))
            });
            return samples.push(sample);
        };
        let known = &mut samples[*at as usize];
        known.exact_value = known.exact_value.saturating_add(sample.exact_value);
        if identity.has_timestamps {
            known.values.extend(sample.values);
            known.timestamps_unix_nano.extend(sample.timestamps_unix_nano);
        } else {
            known.values = vec![known.total().saturating_add(sample.total())];
        }
    }
}

impl SampleIdentity {
    fn of(sample: &Sample) -> Self {
        Self {
            stack: sample.stack,
            attributes: sample.attributes,
            link: sample.link,
            has_timestamps: !sample.timestamps_unix_nano.is_empty(),
            has_values: !sample.values.is_empty(),
        }
    }
}

/// Orders the timestamps of a sample, and its values with them.
pub(super) fn sort_by_time(sample: &mut Sample) {
    if sample.values.len() != sample.timestamps_unix_nano.len() {
        return sample.timestamps_unix_nano.sort_unstable();
    }
    let mut pairs: Vec<(u64, i64)> =
        sample.timestamps_unix_nano.iter().copied().zip(sample.values.iter().copied()).collect();
    pairs.sort_unstable();
    (sample.timestamps_unix_nano, sample.values) = pairs.into_iter().unzip();
}

impl Profile {
    /// Extends the window by another one of the same kind. The result has the id of the earliest.
    fn widen(&mut self, other: &Self) {
        let end = self.end_unix_nano().max(other.end_unix_nano());
        if (other.time_unix_nano, other.profile_id) < (self.time_unix_nano, self.profile_id) {
            self.profile_id = other.profile_id;
            self.time_unix_nano = other.time_unix_nano;
        }
        self.duration_nano = end - self.time_unix_nano;
        self.dropped_attributes_count = self.dropped_attributes_count.saturating_add(other.dropped_attributes_count);
    }
}
