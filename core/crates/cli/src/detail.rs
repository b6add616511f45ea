//! Level of detail of a query. A table of functions needs only stacks. Without labels and links, samples of many requests
//! merge into one, so that a week fits into memory. Called before merging, by `serve` and by the reading verbs.

use spanprof_profile::{AttributeSetId, LinkId, Profile, ProfilesData, ResourceProfiles, Sample, PROCESS_IDENTITY};

/// Attributes that samples keep after the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Stacks and weights by service and type.
    Stacks,
    /// Labels and resources too, without links and timestamps, which grow with the number of requests.
    Labels,
    /// Labels, links, timestamps and resources too.
    Everything,
}

impl Detail {
    /// Drops the other attributes; merging adds the samples that become equal. Gauges keep the identity of their process,
    /// since merging replaces the older gauges of a process.
    pub(crate) fn reduce(self, data: &mut ProfilesData) {
        self.reduce_profiles(&mut data.resources);
    }

    /// As [`Detail::reduce`], of profiles of any dictionary.
    pub(crate) fn reduce_profiles(self, resources: &mut Vec<ResourceProfiles>) {
        self.reduce_keeping_labels(resources);
        if self == Detail::Stacks {
            let profiles = resources.iter_mut().flat_map(|resource| &mut resource.profiles);
            profiles
                .flat_map(|profile| &mut profile.samples)
                .for_each(|sample| sample.attributes = AttributeSetId::EMPTY);
        }
    }

    /// As [`Detail::reduce_profiles`], except for the labels of samples.
    pub(crate) fn reduce_keeping_labels(self, resources: &mut Vec<ResourceProfiles>) {
        if self == Detail::Everything {
            return;
        }
        let summed = |sample: &mut Sample| {
            sample.values = vec![sample.total()];
            sample.timestamps_unix_nano = Vec::new();
            sample.link = LinkId::EMPTY;
        };
        if self == Detail::Labels {
            let profiles = resources.iter_mut().flat_map(|resource| &mut resource.profiles);
            return profiles.flat_map(|profile| &mut profile.samples).for_each(summed);
        }
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
                });
            }
            resource.resource = name_only;
        }
        resources.retain(|resource| !resource.profiles.is_empty());
        resources.append(&mut of_gauges);
        for profile in resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            profile.attributes = AttributeSetId::EMPTY;
            for sample in &mut profile.samples {
                summed(sample);
            }
        }
    }
}
