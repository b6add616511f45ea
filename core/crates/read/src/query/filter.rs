//! Selects samples by service, type, labels, span link and time.

use super::LabelMatcher;
use spanprof_profile::encode::pprof::names;
use spanprof_profile::Transfer;
use spanprof_profile::*;

/// Conditions, combined by AND; the default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `service.name` of the resource, or of the sample where it has one.
    pub service: Option<String>,
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: Option<String>,
    /// Conditions on labels of the sample, or attributes of its resource, as text.
    pub labels: Vec<LabelMatcher>,
    /// Trace of the sample's link.
    pub trace_id: Option<[u8; 16]>,
    /// Span of the sample's link.
    pub span_id: Option<[u8; 8]>,
    /// Start of the range of windows (or timestamps), Unix nanoseconds, inclusive.
    pub from_unix_nano: Option<u64>,
    /// End of the range, exclusive.
    pub to_unix_nano: Option<u64>,
}

impl Filter {
    /// The selected samples, with a dictionary of their entries only. Omits profiles without a selected sample, except for
    /// gauges: that a newer one has no such sample replaces an older one in a merge.
    pub fn apply(&self, data: &ProfilesData) -> ProfilesData {
        let mut passed = ProfilesData::default();
        let mut transfer = Transfer::new(&data.dictionary, &mut passed.dictionary);
        transfer.mappings();
        passed.resources =
            self.select_into(data, &mut OwnDictionary { transfer, is_one_type: self.type_name.is_some() });
        passed
    }

    /// The selected samples as [`Self::apply`], with ids of the dictionary of `data`. For a merge, which copies the entries.
    pub fn select(&self, data: &ProfilesData) -> Vec<ResourceProfiles> {
        self.select_into(data, &mut SameDictionary)
    }

    fn select_into(&self, data: &ProfilesData, target: &mut impl SelectionTarget) -> Vec<ResourceProfiles> {
        let mut passed = Vec::new();
        let links: Vec<bool> = data.dictionary.links().iter().map(|link| self.matches_link(link)).collect();
        for resource in &data.resources {
            // Each attribute set is evaluated once per resource.
            let mut sets: Vec<Option<bool>> = vec![None; data.dictionary.lens().attribute_sets];
            let mut profiles = Vec::new();
            for profile in resource.profiles.iter().filter(|profile| self.matches_profile(profile)) {
                let mut kept = target.empty_profile(profile);
                for sample in &profile.samples {
                    if !links.get(sample.link.index()).copied().unwrap_or_else(|| self.matches_link(&Link::default())) {
                        continue;
                    }
                    let evaluate = || self.matches_labels(&data.dictionary, sample.attributes, &resource.resource);
                    let is_match = match sets.get_mut(sample.attributes.index()) {
                        Some(known) => *known.get_or_insert_with(evaluate),
                        None => evaluate(),
                    };
                    if let Some(part) = is_match.then(|| self.within_range(profile, sample)).flatten() {
                        kept.samples.push(target.sample(part));
                    }
                }
                if !kept.samples.is_empty() || (profile.is_gauge() && self.matches_service_of(resource)) {
                    profiles.push(kept);
                }
            }
            if !profiles.is_empty() {
                let (resource, scope) = (resource.resource.clone(), resource.scope.clone());
                passed.push(ResourceProfiles { resource, scope, profiles });
            }
        }
        passed
    }

    fn matches_link(&self, link: &Link) -> bool {
        self.trace_id.is_none_or(|id| id == link.trace_id) && self.span_id.is_none_or(|id| id == link.span_id)
    }

    fn matches_profile(&self, profile: &Profile) -> bool {
        let overlaps = self.to_unix_nano.is_none_or(|to| profile.time_unix_nano < to)
            && self.from_unix_nano.is_none_or(|from| profile.end_unix_nano() > from || profile.time_unix_nano == from);
        overlaps && self.type_name.as_ref().is_none_or(|name| name == profile.type_name())
    }

    fn matches_service_of(&self, resource: &ResourceProfiles) -> bool {
        self.service.as_ref().is_none_or(|name| name == resource.service_name())
    }

    fn matches_labels(&self, dictionary: &Dictionary, set: AttributeSetId, resource: &[Attribute]) -> bool {
        let value_of = |key: &str| {
            let of_sample = dictionary.attributes_of(set).find(|attribute| attribute.key == key);
            let of_resource =
                || resource.iter().find(|attribute| attribute.key == key).map(|found| found.value.as_ref());
            of_sample.map(|found| found.value).or_else(of_resource).map(|value| value.to_string()).unwrap_or_default()
        };
        self.service.as_ref().is_none_or(|service| *service == value_of("service.name"))
            && self.labels.iter().all(|label| label.accepts(&value_of(&label.key)))
    }

    /// The sample, or the part within the range if it has timestamps.
    fn within_range(&self, profile: &Profile, sample: &Sample) -> Option<Sample> {
        let inside = |time: &u64| {
            self.from_unix_nano.is_none_or(|from| *time >= from) && self.to_unix_nano.is_none_or(|to| *time < to)
        };
        let times = &sample.timestamps_unix_nano;
        if times.iter().all(inside) {
            return Some(sample.clone());
        }
        let kept: Vec<usize> = (0..times.len()).filter(|at| inside(&times[*at])).collect();
        if kept.is_empty() {
            return None;
        }
        let paired = sample.values.len() == times.len();
        let mut part = Sample {
            values: if paired { kept.iter().map(|at| sample.values[*at]).collect() } else { Vec::new() },
            timestamps_unix_nano: kept.iter().map(|at| times[*at]).collect(),
            ..sample.clone()
        };
        // The exact value belongs to the whole sample; the part gets a proportional share.
        if profile.exact_type.is_some() && sample.total() != 0 {
            let share = i128::from(sample.exact_value) * i128::from(part.total()) / i128::from(sample.total());
            part.exact_value = i64::try_from(share).unwrap_or(i64::MAX);
        }
        Some(part)
    }
}

/// The dictionary of selected samples.
trait SelectionTarget {
    fn empty_profile(&mut self, profile: &Profile) -> Profile;
    fn sample(&mut self, sample: Sample) -> Sample;
}

/// A dictionary of the selected entries.
struct OwnDictionary<'f, 't> {
    transfer: Transfer<'f, 't>,
    is_one_type: bool,
}

impl SelectionTarget for OwnDictionary<'_, '_> {
    fn empty_profile(&mut self, profile: &Profile) -> Profile {
        let mut empty = self.transfer.empty_profile(profile);
        if self.is_one_type {
            empty.attributes = without_sample_types(self.transfer.to, empty.attributes);
        }
        empty
    }

    fn sample(&mut self, sample: Sample) -> Sample {
        self.transfer.sample(&sample)
    }
}

/// The dictionary of the selection's source.
struct SameDictionary;

impl SelectionTarget for SameDictionary {
    fn empty_profile(&mut self, profile: &Profile) -> Profile {
        Profile {
            sample_type: profile.sample_type.clone(),
            period_type: profile.period_type.clone(),
            exact_type: profile.exact_type.clone(),
            samples: Vec::new(),
            ..*profile
        }
    }

    fn sample(&mut self, sample: Sample) -> Sample {
        sample
    }
}

/// The list of a file's types would bring the other types back as columns of zeros.
fn without_sample_types(dictionary: &mut Dictionary, set: AttributeSetId) -> AttributeSetId {
    let is_kept = |id: &AttributeId| dictionary.get_attribute(*id).key != names::SAMPLE_TYPES;
    let kept: Vec<AttributeId> = dictionary.get_attribute_set(set).iter().copied().filter(is_kept).collect();
    dictionary.attribute_set(&kept)
}
