//! Samples by the value of one label: the heaviest values, and the rest as one group. For the series of the timeline and the flame
//! graph of `group`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use spanprof_profile::transform::{FunctionKey, StackNode, StackTree};
use spanprof_profile::{AttributeSetId, Profile, ProfilesData};
use spanprof_read::query::TypeSummary;

/// Values with a group of their own.
const MAX_GROUPS: usize = 6;

/// The value of a label; `None` for all values that have no group of their own.
pub(super) type GroupValue = Option<String>;

/// The groups by descending weight, the rest at the end. The value "" is that of samples without the label.
pub(super) fn groups<T>(values: BTreeMap<String, (i64, Vec<T>)>) -> Vec<(GroupValue, Vec<T>)> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by_key(|(_, (weight, _))| Reverse(*weight));
    let rest: Vec<T> =
        values.split_off(values.len().min(MAX_GROUPS)).into_iter().flat_map(|(_, (_, items))| items).collect();
    let mut groups: Vec<_> = values.into_iter().map(|(value, (_, items))| (Some(value), items)).collect();
    if !rest.is_empty() {
        groups.push((None, rest));
    }
    groups
}

/// The profiles of one type by the only label of their samples.
pub(super) fn profiles_by_value(data: &ProfilesData, type_name: &str) -> Vec<(GroupValue, Vec<Profile>)> {
    let mut values: BTreeMap<String, (i64, Vec<Profile>)> = BTreeMap::new();
    for (_, profile) in data.profiles().filter(|(_, profile)| profile.type_name() == type_name) {
        let empty = Profile { samples: Vec::new(), ..profile.clone() };
        let mut parts: HashMap<_, Profile> = HashMap::new();
        for sample in &profile.samples {
            parts.entry(sample.attributes).or_insert_with(|| empty.clone()).samples.push(sample.clone());
        }
        for (set, part) in parts {
            let weight = part.samples.iter().fold(0i64, |sum, sample| sum.saturating_add(part.weight(sample)));
            let (sum, profiles) = values.entry(only_value(data, set)).or_default();
            *sum = sum.saturating_add(weight);
            profiles.push(part);
        }
    }
    groups(values)
}

/// The text of the only label of a sample, "" without any.
fn only_value(data: &ProfilesData, set: AttributeSetId) -> String {
    data.dictionary.attributes_of(set).next().map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

/// Summaries of samples with one label; `service` is its value.
pub(super) fn summaries_by_value(data: &ProfilesData) -> Vec<TypeSummary> {
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

/// One tree with a function of each name at the root, and its tree below it.
pub(super) fn joined(type_name: &str, trees: Vec<(String, StackTree)>) -> StackTree {
    let root = FunctionKey { name: "root".to_owned(), ..FunctionKey::default() };
    let mut joined = StackTree {
        type_name: type_name.to_owned(),
        functions: vec![root],
        nodes: vec![StackNode { parent: 0, function: 0, self_weight: 0, total_weight: 0 }],
        ..StackTree::default()
    };
    let mut known: HashMap<FunctionKey, u32> = HashMap::new();
    for (name, tree) in trees {
        joined.unit.clone_from(&tree.unit);
        let functions = &mut joined.functions;
        let mut function = |key: &FunctionKey| {
            *known.entry(key.clone()).or_insert_with(|| {
                functions.push(key.clone());
                functions.len() as u32 - 1
            })
        };
        let group = function(&FunctionKey { name, ..FunctionKey::default() });
        let functions: Vec<u32> = tree.functions.iter().skip(1).map(&mut function).collect();
        let first = joined.nodes.len() as u32;
        for (at, node) in tree.nodes.iter().enumerate() {
            joined.nodes.push(match at {
                0 => StackNode { parent: 0, function: group, ..*node },
                _ => {
                    StackNode { parent: node.parent + first, function: functions[node.function as usize - 1], ..*node }
                }
            });
        }
        let total = &mut joined.nodes[0].total_weight;
        *total = total.saturating_add(tree.nodes.first().map_or(0, |root| root.total_weight));
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_values_are_groups_and_the_others_are_one() {
        let values = (0..9).map(|nth| (format!("v{nth}"), (10 - nth, vec![nth]))).collect();
        let groups = groups(values);
        assert_eq!(groups.len(), 7);
        assert_eq!(groups[0], (Some("v0".to_owned()), vec![0]));
        assert_eq!(groups[6], (None, vec![6, 7, 8]));
    }

    #[test]
    fn joined_trees_share_functions_and_add_up() {
        let function = |name: &str| FunctionKey { name: name.to_owned(), ..FunctionKey::default() };
        let node =
            |parent, function, self_weight, total_weight| StackNode { parent, function, self_weight, total_weight };
        let tree = |weight| StackTree {
            unit: "bytes".to_owned(),
            functions: vec![function("root"), function("main"), function("leaf")],
            nodes: vec![node(0, 0, 0, weight), node(0, 1, 0, weight), node(1, 2, weight, weight)],
            ..StackTree::default()
        };
        let joined = joined("cpu", vec![("route=/a".to_owned(), tree(3)), ("route=/b".to_owned(), tree(4))]);
        let names: Vec<&str> = joined.functions.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(names, ["root", "route=/a", "main", "leaf", "route=/b"]);
        let expected = [
            node(0, 0, 0, 7),
            node(0, 1, 0, 3),
            node(1, 2, 0, 3),
            node(2, 3, 3, 3),
            node(0, 4, 0, 4),
            node(4, 2, 0, 4),
            node(5, 3, 4, 4),
        ];
        assert_eq!((joined.nodes, joined.unit), (expected.to_vec(), "bytes".to_owned()));
    }
}
