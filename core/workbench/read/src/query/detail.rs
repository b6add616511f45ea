//! Level of detail of a query. A table of functions needs only stacks. Without labels and links, samples of many requests
//! merge into one, so that a week fits into memory. Called before merging, by `serve` and by the reading verbs.

use std::collections::HashMap;

use spanprof_profile::{
    AttributeSetId, LinkId, Profile, ProfilesData, ResourceProfiles, Sample, StackId, Value, PROCESS_IDENTITY,
};

/// Attributes that samples keep after the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Stacks and weights by service and type.
    Stacks,
    /// As stacks, with the text of one label, of the sample or else of its resource.
    OneLabel(String),
    /// Labels and resources without stacks: samples are few then.
    LabelsOnly,
    /// Labels and resources too, without links and timestamps, which grow with the number of requests.
    Labels,
    /// Labels, links, timestamps and resources too.
    Everything,
}

impl Detail {
    /// Whether roll-ups have it: they lack links, timestamps and some labels.
    pub fn is_in_rollups(&self) -> bool {
        matches!(self, Self::Stacks | Self::OneLabel(_) | Self::LabelsOnly)
    }

    /// Drops the other attributes; merging adds the samples that become equal.
    pub fn reduce(&self, data: &mut ProfilesData) {
        match self {
            Self::Stacks => reduce_to_stacks(&mut data.resources),
            Self::OneLabel(key) => {
                keep_one_label(data, key);
                drop_resources(&mut data.resources);
                samples_of(&mut data.resources).for_each(sum_values);
            }
            Self::LabelsOnly => samples_of(&mut data.resources).for_each(|sample| {
                sum_values(sample);
                sample.stack = StackId::EMPTY;
            }),
            Self::Labels => samples_of(&mut data.resources).for_each(sum_values),
            Self::Everything => {}
        }
    }
}

/// [`Detail::Stacks`], of profiles of any dictionary.
pub fn reduce_to_stacks(resources: &mut Vec<ResourceProfiles>) {
    drop_resources(resources);
    for sample in samples_of(resources) {
        sum_values(sample);
        sample.attributes = AttributeSetId::EMPTY;
    }
}

fn samples_of(resources: &mut [ResourceProfiles]) -> impl Iterator<Item = &mut Sample> {
    resources.iter_mut().flat_map(|resource| &mut resource.profiles).flat_map(|profile| &mut profile.samples)
}

/// Drops link and timestamps.
fn sum_values(sample: &mut Sample) {
    let total = sample.total();
    sample.values.clear();
    sample.values.push(total);
    sample.timestamps_unix_nano = Vec::new();
    sample.link = LinkId::EMPTY;
}

/// Drops the attributes of resources and profiles except for the service. Gauges keep the identity of their process, since
/// merging replaces the older gauges of a process.
fn drop_resources(resources: &mut Vec<ResourceProfiles>) {
    let mut of_gauges = Vec::new();
    for resource in resources.iter_mut() {
        let (gauges, sums) = std::mem::take(&mut resource.profiles).into_iter().partition(Profile::is_gauge);
        resource.profiles = sums;
        let keep = |kept: &[&str]| {
            resource.resource.iter().filter(|attribute| kept.contains(&attribute.key.as_str())).cloned().collect()
        };
        let identity = keep(&[&["service.name"], &PROCESS_IDENTITY[..]].concat());
        let name_only = keep(&["service.name"]);
        if !gauges.is_empty() {
            of_gauges.push(ResourceProfiles {
                resource: identity,
                scope: resource.scope.clone(),
                profiles: gauges,
                ..ResourceProfiles::default()
            });
        }
        resource.resource = name_only;
    }
    resources.retain(|resource| !resource.profiles.is_empty());
    resources.append(&mut of_gauges);
    for profile in resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        profile.attributes = AttributeSetId::EMPTY;
    }
}

/// Replaces the labels of each sample by the text of one.
fn keep_one_label(data: &mut ProfilesData, key: &str) {
    let ProfilesData { dictionary, resources } = data;
    for resource in resources {
        let of_resource = resource.resource.iter().find(|attribute| attribute.key == key);
        let of_resource = of_resource.map(|attribute| attribute.value.as_ref().to_string());
        let mut kept: HashMap<AttributeSetId, AttributeSetId> = HashMap::new();
        for sample in resource.profiles.iter_mut().flat_map(|profile| &mut profile.samples) {
            sample.attributes = *kept.entry(sample.attributes).or_insert_with(|| {
                let of_sample = dictionary.attributes_of(sample.attributes).find(|attribute| attribute.key == key);
                let value = of_sample.map(|attribute| attribute.value.to_string()).or_else(|| of_resource.clone());
                match value.filter(|value| !value.is_empty()) {
                    None => AttributeSetId::EMPTY,
                    Some(value) => {
                        let id = dictionary.attribute(key, Value::String(&value), "");
                        dictionary.attribute_set(&[id])
                    }
                }
            });
        }
    }
}
