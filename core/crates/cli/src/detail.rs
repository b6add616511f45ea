//! Level of detail of a query. A table of functions needs only stacks. Without labels and links, samples of many requests
//! merge into one, so that a week fits into memory. Called before merging, by `serve` and by the reading verbs.

use spanprof_profile::{AttributeSetId, LinkId, ProfilesData};

/// Attributes that samples keep after the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Stacks and weights by service and type.
    Stacks,
    /// Labels, links, timestamps and resources too.
    Everything,
}

impl Detail {
    /// Drops the other attributes; merging adds the samples that become equal.
    pub(crate) fn reduce(self, data: &mut ProfilesData) {
        if self == Detail::Everything {
            return;
        }
        for resource in &mut data.resources {
            resource.resource.retain(|attribute| attribute.key == "service.name");
            for profile in &mut resource.profiles {
                profile.attributes = AttributeSetId::EMPTY;
                for sample in &mut profile.samples {
                    let total = sample.total();
                    sample.values = vec![total];
                    sample.timestamps_unix_nano = Vec::new();
                    sample.attributes = AttributeSetId::EMPTY;
                    sample.link = LinkId::EMPTY;
                }
            }
        }
    }
}
