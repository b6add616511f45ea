//! The comparison by call path.

use spanprof_profile::transform::{merge, tree};
use spanprof_profile::*;
use spanprof_read::query::{diff, diff_tree, folded_diff_tree, Compared, Granularity, WindowSums};

use crate::stacks::stack_of;

/// Twenty windows of a program whose time is in one function of a library: its name and the least weight.
fn library_windows(name: &str, weight: i64) -> ProfilesData {
    let mut data = ProfilesData::default();
    let d = &mut data.dictionary;
    let calls = [(name, "/venv/lib/python3.11/site-packages/orm/query.py", 0, 1), ("main", "/srv/shop/app.py", 0, 1)];
    let stack = stack_of(d, calls);
    let cpu = ValueType::new("cpu", "nanoseconds");
    let window = |nth: i64| Profile {
        sample_type: ValueType::new("samples", "count"),
        period_type: cpu.clone(),
        period: 1,
        duration_nano: 10_000_000_000,
        samples: vec![Sample { stack, values: vec![weight + nth % 5], ..Sample::default() }],
        ..Profile::default()
    };
    let profiles = (0..20).map(window).collect();
    data.resources.push(ResourceProfiles { profiles, ..ResourceProfiles::default() });
    data
}

#[test]
fn folded_libraries_are_compared_as_one_frame_whichever_of_their_functions_are_called() {
    let sides = [library_windows("fetch", 1000), library_windows("fetch_all", 2000)].map(|data| {
        let mut windows = WindowSums::with_paths(Granularity::Function, Compared::Flat).and_folded_paths();
        windows.add(&data);
        windows
    });
    let sides = sides.each_ref();
    let table = diff(sides, "cpu", false);
    let whole = diff_tree(sides, &table, false);
    assert_eq!((whole.nodes.len(), whole.one_sided.len()), (4, 2), "root, main, the new and the vanished function");
    let folded = folded_diff_tree(sides, &table, &whole, false);
    assert!(folded.one_sided.is_empty());
    let [_, main, library] = folded.nodes[..] else { panic!("root, main and orm: {:?}", folded.nodes) };
    assert_eq!(folded.functions[library.function as usize].name, "orm");
    assert_eq!(library.self_weights, [20_040, 40_040]);
    let growth = library.growth.expect("twenty windows on each side");
    assert!(library.is_significant && growth.low > 0.9 && growth.high < 1.1, "{growth:?}");
    assert!(!main.is_significant, "as in the table: its callee changed");
}

#[test]
fn call_paths_summed_over_windows_are_those_of_the_merged_windows() {
    let windows =
        [("fetch", 1000), ("fetch_all", 2000), ("fetch", 5)].map(|(name, weight)| library_windows(name, weight));
    let mut sums = WindowSums::with_paths(Granularity::Function, Compared::Flat).and_folded_paths();
    windows.iter().for_each(|window| sums.add(window));
    let none = WindowSums::default();
    let merged = tree(&merge(&windows), "cpu");
    let sides = [&none, &sums];
    let table = diff(sides, "cpu", false);
    let whole = diff_tree(sides, &table, false);
    let folded = folded_diff_tree(sides, &table, &whole, false);
    for (summed, tree) in [(whole, &merged), (folded, &merged.folded(|_| false))] {
        let summed = summed.nodes.iter().map(|node| {
            let name = &summed.functions[node.function as usize].name;
            (node.parent, name.as_str(), node.self_weights, node.total_weights)
        });
        let nodes = tree.nodes.iter().map(|node| {
            let name = &tree.functions[node.function as usize].name;
            (node.parent, name.as_str(), [0, node.self_weight], [0, node.total_weight])
        });
        assert_eq!(summed.collect::<Vec<_>>(), nodes.collect::<Vec<_>>());
    }
}
