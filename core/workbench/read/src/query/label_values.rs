//! The labels of samples and attributes of resources, with their values: the report on cardinality.

use std::collections::{BTreeMap, HashSet};

use hashbrown::HashMap;
use spanprof_profile::{AttributeSetId, ProfilesData};

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelKey {
    /// Name of the label or attribute.
    pub key: String,
    /// Whether it is an attribute of the resource; labels of samples that repeat it with its value are left out.
    pub is_resource: bool,
    /// Number of observations that have it.
    pub samples: usize,
    /// Its values with the weight of their samples, by descending weight.
    pub values: Vec<(String, i64)>,
}

/// The keys of one profile type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelTable {
    /// Unit of all weights.
    pub unit: String,
    /// Weight of all samples.
    pub total: i64,
    /// Number of observations, as of [`Profile::observations`](spanprof_profile::Profile::observations).
    pub samples: usize,
    /// Number of distinct combinations of all attributes: the series of a back end that stores one for each.
    pub series: usize,
    /// By descending number of values, then by name.
    pub keys: Vec<LabelKey>,
}

/// The labels of one profile type.
pub fn labels(data: &ProfilesData, type_name: &str) -> LabelTable {
    #[derive(Default)]
    struct KeySums {
        samples: usize,
        values: HashMap<String, i64>,
    }
    let mut table = LabelTable::default();
    let mut keys: BTreeMap<(&str, bool), KeySums> = BTreeMap::new();
    let mut series: HashSet<(Vec<(String, String)>, AttributeSetId)> = HashSet::new();
    for resource in &data.resources {
        // KeySums of each attribute set: its values become text once.
        let mut sets: HashMap<AttributeSetId, (usize, i64)> = HashMap::new();
        for profile in resource.profiles.iter().filter(|profile| profile.type_name() == type_name) {
            profile.unit().clone_into(&mut table.unit);
            for sample in &profile.samples {
                let sum = sets.entry(sample.attributes).or_default();
                let observations = profile.observations(sample).max(0) as usize;
                *sum = (sum.0 + observations, sum.1.saturating_add(profile.weight(sample)));
            }
        }
        let mut identity: Vec<(String, String)> = resource
            .resource
            .iter()
            .map(|attribute| (attribute.key.clone(), attribute.value.as_ref().to_string()))
            .collect();
        identity.sort();
        for (set, (samples, weight)) in sets {
            table.samples += samples;
            table.total = table.total.saturating_add(weight);
            let mut add = |key, is_resource, value: String| {
                let sums = keys.entry((key, is_resource)).or_default();
                sums.samples += samples;
                let sum = sums.values.entry(value).or_default();
                *sum = sum.saturating_add(weight);
            };
            for label in data.dictionary.attributes_of(set) {
                let pair = (label.key.to_owned(), label.value.to_string());
                // Some producers repeat attributes of the resource in each sample.
                if identity.binary_search(&pair).is_err() {
                    add(label.key, false, pair.1);
                }
            }
            resource
                .resource
                .iter()
                .for_each(|attribute| add(&attribute.key, true, attribute.value.as_ref().to_string()));
            series.insert((identity.clone(), set));
        }
    }
    table.series = series.len();
    table.keys = keys
        .into_iter()
        .map(|((key, is_resource), sums)| {
            let mut values: Vec<_> = sums.values.into_iter().collect();
            values.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
            LabelKey { key: key.to_owned(), is_resource, samples: sums.samples, values }
        })
        .collect();
    table.keys.sort_by_key(|key| std::cmp::Reverse(key.values.len()));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{Attribute, Profile, ResourceProfiles, Sample, Value, ValueType};

    #[test]
    fn a_label_that_repeats_an_attribute_of_the_resource_is_listed_once() {
        let mut data = ProfilesData::default();
        let samples = ["shop", "shop", "cart"].map(|service| {
            let label = data.dictionary.attribute("service.name", Value::String(service), "");
            let attributes = data.dictionary.attribute_set(&[label]);
            Sample { attributes, values: vec![10], ..Sample::default() }
        });
        let profile = |samples: &[Sample]| Profile {
            sample_type: ValueType::new("wall", "nanoseconds"),
            samples: samples.to_vec(),
            ..Profile::default()
        };
        let resource = vec![Attribute::string("service.name", "shop")];
        let key = |is_resource, samples, value: &str| LabelKey {
            key: "service.name".to_owned(),
            is_resource,
            samples,
            values: vec![(value.to_owned(), 10 * samples as i64)],
        };
        let of = |samples| ResourceProfiles {
            resource: resource.clone(),
            profiles: vec![profile(samples)],
            ..ResourceProfiles::default()
        };
        data.resources = vec![of(&samples[..2])];
        assert_eq!(labels(&data, "wall").keys, [key(true, 2, "shop")]);
        // A label of another value stays.
        data.resources = vec![of(&samples)];
        assert_eq!(labels(&data, "wall").keys, [key(false, 1, "cart"), key(true, 3, "shop")]);
    }
}
