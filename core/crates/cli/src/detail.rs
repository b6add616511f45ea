//! How much of each sample an answer needs. A table of functions needs only stacks; dropping the rest lets the samples of
//! many requests add up, so that a week fits into memory. Called before merging, by `serve` and by the reading verbs.

use spanprof_profile::{AttributeSetId, LinkId, ProfilesData};

/// What is kept of samples that pass a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Stacks and weights by service and type.
    Stacks,
    /// Labels, links, timestamps and resources too.
    Everything,
}

impl Detail {
    /// Drops what is not needed; merging does the adding up.
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
