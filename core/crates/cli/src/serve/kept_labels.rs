//! Which labels the merged samples of a query keep beside their stacks: for series and flame graphs by label, and for the weight
//! of each value.

use std::collections::{BTreeMap, HashMap};

use spanprof_profile::{AttributeSetId, LinkId, ProfilesData, StackId, Value};
use spanprof_read::query::{self, TypeSummary};

use crate::detail::Detail;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeptLabels {
    /// As the detail of the query.
    #[default]
    OfDetail,
    /// One label, of the sample or else of its resource.
    One(String),
    /// All, without stacks: samples are few then.
    WithoutStacks,
}

impl KeptLabels {
    /// Reduces the samples of one window, and returns their summaries. Where one label is kept, `service` of a summary is the
    /// value of the label.
    pub(crate) fn reduce(&self, data: &mut ProfilesData, detail: Detail) -> Vec<TypeSummary> {
        match self {
            Self::OfDetail => {
                let summaries = query::types(data);
                detail.reduce(data);
                summaries
            }
            Self::One(key) => {
                keep_one(data, key);
                let summaries = by_value(data);
                detail.reduce_keeping_labels(&mut data.resources);
                summaries
            }
            Self::WithoutStacks => {
                for sample in data
                    .resources
                    .iter_mut()
                    .flat_map(|resource| &mut resource.profiles)
                    .flat_map(|profile| &mut profile.samples)
                {
                    sample.values = vec![sample.total()];
                    sample.timestamps_unix_nano = Vec::new();
                    sample.stack = StackId::EMPTY;
                    sample.link = LinkId::EMPTY;
                }
                query::types(data)
            }
        }
    }
}

/// Replaces the labels of each sample by the text of one.
fn keep_one(data: &mut ProfilesData, key: &str) {
    let ProfilesData { dictionary, resources } = data;
    for resource in resources {
        let of_resource = resource.resource.iter().find(|attribute| attribute.key == key);
        let of_resource = of_resource.map(|attribute| attribute.value.as_ref().to_string());
        let mut kept: HashMap<AttributeSetId, AttributeSetId> = HashMap::new();
        for sample in resource.profiles.iter_mut().flat_map(|profile| &mut profile.samples) {
            sample.attributes = *kept.entry(sample.attributes).or_insert_with(|| {
                let own = dictionary.attributes_of(sample.attributes).find(|attribute| attribute.key == key);
                let value = own.map(|attribute| attribute.value.to_string()).or_else(|| of_resource.clone());
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

/// The text of the only label of a sample, "" without any.
pub(crate) fn only_value(data: &ProfilesData, set: AttributeSetId) -> String {
    data.dictionary.attributes_of(set).next().map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

fn by_value(data: &ProfilesData) -> Vec<TypeSummary> {
    let mut summaries: BTreeMap<(AttributeSetId, &str), TypeSummary> = BTreeMap::new();
    for (_, profile) in data.profiles() {
        for sample in &profile.samples {
            let summary = summaries.entry((sample.attributes, profile.type_name())).or_insert_with(|| TypeSummary {
                service: only_value(data, sample.attributes),
                type_name: profile.type_name().to_owned(),
                unit: profile.unit().to_owned(),
                samples: 0,
                total: 0,
                from_unix_nano: u64::MAX,
                to_unix_nano: 0,
            });
            summary.samples += 1;
            summary.total = summary.total.saturating_add(profile.weight(sample));
            summary.from_unix_nano = summary.from_unix_nano.min(profile.time_unix_nano);
            summary.to_unix_nano = summary.to_unix_nano.max(profile.end_unix_nano());
        }
    }
    summaries.into_values().collect()
}
