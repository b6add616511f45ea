//! Samples by the value of one label: the heaviest values, and the rest as one group. For the series of the timeline and the flame
//! graph of `group`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use spanprof_profile::transform::{FunctionKey, StackNode, StackTree};
use spanprof_profile::{is_gauge_type, AttributeSetId, HeapAge, Profile, ProfilesData};
use spanprof_read::query::TypeSummary;

/// Values with a group of their own.
const MAX_GROUPS: usize = 6;

/// The value of a label; `None` for all values that have no group of their own.
pub(crate) type GroupValue = Option<String>;

/// The groups of the label `key` by descending weight, those of [`HeapAge::LABEL`] by age; the rest at the end. The value "" is
/// that of samples without the label.
pub(crate) fn groups<T>(key: &str, values: BTreeMap<String, (i64, Vec<T>)>) -> Vec<(GroupValue, Vec<T>)> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by_key(|(_, (weight, _))| Reverse(*weight));
    let rest: Vec<T> =
        values.split_off(values.len().min(MAX_GROUPS)).into_iter().flat_map(|(_, (_, items))| items).collect();
    if key == HeapAge::LABEL {
        values.sort_by_key(|(value, _)| HeapAge::from_text(value).map_or((true, None), |age| (false, Some(age))));
    }
    let mut groups: Vec<_> = values.into_iter().map(|(value, (_, items))| (Some(value), items)).collect();
    if !rest.is_empty() {
        groups.push((None, rest));
    }
    groups
}

/// The profiles of one type by the only label of their samples, which is `key`.
pub(crate) fn profiles_by_value(data: &ProfilesData, type_name: &str, key: &str) -> Vec<(GroupValue, Vec<Profile>)> {
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
    groups(key, values)
}

/// The text of the only label of a sample, "" without any.
fn only_value(data: &ProfilesData, set: AttributeSetId) -> String {
    data.dictionary.attributes_of(set).next().map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

/// Summaries of samples with one label; `service` is its value. All of a type have the time range of its profiles. A gauge without
/// samples has a summary, too: its value is 0.
pub(crate) fn summaries_by_value(data: &ProfilesData) -> Vec<TypeSummary> {
    let mut ranges: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (_, profile) in data.profiles() {
        let (from, to) = ranges.entry(profile.type_name()).or_insert((u64::MAX, 0));
        *from = profile.time_unix_nano.min(*from);
        *to = profile.end_unix_nano().max(*to);
    }
    let summary = |profile: &Profile, value: String| {
        let (from_unix_nano, to_unix_nano) = ranges.get(profile.type_name()).copied().unwrap_or_default();
        let (type_name, unit) = (profile.type_name().to_owned(), profile.unit().to_owned());
        TypeSummary { service: value, type_name, unit, samples: 0, total: 0, from_unix_nano, to_unix_nano }
    };
    let mut summaries: BTreeMap<(AttributeSetId, &str), TypeSummary> = BTreeMap::new();
    for (_, profile) in data.profiles() {
        let type_name = profile.type_name();
        for sample in &profile.samples {
            let new = || summary(profile, only_value(data, sample.attributes));
            let summary = summaries.entry((sample.attributes, type_name)).or_insert_with(new);
            summary.samples += profile.observations(sample).max(0) as usize;
            summary.total = summary.total.saturating_add(profile.weight(sample));
        }
        if profile.samples.is_empty() && is_gauge_type(type_name) {
            summaries.entry((AttributeSetId::EMPTY, type_name)).or_insert_with(|| summary(profile, String::new()));
        }
    }
    summaries.into_values().collect()
}

/// One tree with a function of each name at the root, and its tree below it.
pub(crate) fn joined(type_name: &str, trees: Vec<(String, StackTree)>) -> StackTree {
    let root = FunctionKey { name: "root".to_owned(), ..FunctionKey::default() };
    let mut joined = StackTree {
        type_name: type_name.to_owned(),
        functions: vec![root],
        nodes: vec![StackNode { parent: 0, function: 0, self_weight: 0, total_weight: 0 }],
        ..StackTree::default()
    };
    let mut indices: HashMap<FunctionKey, u32> = HashMap::new();
    for (name, tree) in trees {
        joined.unit.clone_from(&tree.unit);
        let functions = &mut joined.functions;
        let mut function = |key: &FunctionKey| {
            *indices.entry(key.clone()).or_insert_with(|| {
                functions.push(key.clone());
                functions.len() as u32 - 1
            })
        };
        let group = function(&FunctionKey { name, ..FunctionKey::default() });
        let functions: Vec<u32> = tree.functions.iter().skip(1).map(&mut function).collect();
        let first = joined.nodes.len() as u32;
        for (index, node) in tree.nodes.iter().enumerate() {
            joined.nodes.push(match index {
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

/// A tree whose nodes below the root, the groups, are in the order of those of `ordered`. Folding sorts them by name.
pub(crate) fn in_order_of(ordered: &StackTree, tree: StackTree) -> StackTree {
    let groups_of = |tree: &StackTree| -> Vec<(usize, String)> {
        let nodes = tree.nodes.iter().enumerate().skip(1).filter(|(_, node)| node.parent == 0);
        nodes.map(|(index, node)| (index, tree.functions[node.function as usize].name.clone())).collect()
    };
    let rank: HashMap<String, usize> =
        groups_of(ordered).into_iter().enumerate().map(|(nth, (_, name))| (name, nth)).collect();
    let groups = groups_of(&tree);
    let ends = groups.iter().skip(1).map(|(start, _)| *start).chain([tree.nodes.len()]);
    let mut subtrees: Vec<_> =
        groups.iter().zip(ends).map(|((start, name), end)| (rank.get(name), *start..end)).collect();
    subtrees.sort_by_key(|(rank, _)| rank.copied());
    let mut nodes: Vec<StackNode> = tree.nodes.first().copied().into_iter().collect();
    for (_, subtree) in subtrees {
        let (old, new) = (subtree.start as u32, nodes.len() as u32);
        nodes.extend(tree.nodes[subtree].iter().map(|node| match node.parent {
            0 => *node,
            parent => StackNode { parent: parent - old + new, ..*node },
        }));
    }
    StackTree { nodes, ..tree }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_values_are_groups_and_the_others_are_one() {
        let values = (0..9).map(|nth| (format!("v{nth}"), (10 - nth, vec![nth]))).collect();
        let groups = groups("route", values);
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

    #[test]
    fn groups_that_were_sorted_by_name_return_to_their_order_with_their_subtrees() {
        let function = |name: &str| FunctionKey { name: name.to_owned(), ..FunctionKey::default() };
        let node = |parent, function, weight| StackNode { parent, function, self_weight: 0, total_weight: weight };
        let tree = |names: [&str; 5], nodes: Vec<StackNode>| StackTree {
            functions: names.map(function).to_vec(),
            nodes,
            ..StackTree::default()
        };
        let root = node(0, 0, 60);
        let ordered =
            tree(["root", "new", "survived", "old", "main"], [1, 2, 3].map(|function| node(0, function, 20)).to_vec());
        let ordered = StackTree { nodes: [vec![root], ordered.nodes].concat(), ..ordered };
        let below = |parent| node(parent, 4, 20);
        let by_name =
            vec![root, node(0, 1, 20), below(1), node(0, 3, 20), below(3), below(4), node(0, 2, 20), below(6)];
        let expected =
            vec![root, node(0, 1, 20), below(1), node(0, 2, 20), below(3), node(0, 3, 20), below(5), below(6)];
        let names = ["root", "new", "survived", "old", "main"];
        assert_eq!(in_order_of(&ordered, tree(names, by_name)).nodes, expected);
    }
}
