//! Queries: merging is commutative and associative, totals agree, filters select the right samples.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::encode::text;
use spanprof_profile::transform::{merge, tree, FunctionTable};
use spanprof_profile::*;
use spanprof_read::query::{
    call_tree, diff, diff_tree, labels, neighbors, top, types, Compared, Filter, FunctionLine, Granularity,
    LabelMatcher, StackFilter, TopRow, WindowSums,
};

use crate::random::{profiles_data, ALL};
use crate::stacks::stack_of;

/// Weight and stack, leaf first, of each sample.
fn stacks(data: &ProfilesData, type_name: &str) -> Vec<(i64, Vec<FunctionLine>)> {
    let mut table = FunctionTable::new(&data.dictionary);
    let mut found = Vec::new();
    for (_, profile) in data.profiles().filter(|(_, profile)| profile.type_name() == type_name) {
        for sample in &profile.samples {
            let locations = data.dictionary.get_stack(sample.stack).iter();
            let functions: Vec<u32> = locations.flat_map(|at| table.of_location(*at).collect::<Vec<_>>()).collect();
            let row = |function: u32| FunctionLine::from(table.rows()[function as usize].clone());
            found.push((profile.weight(sample), functions.into_iter().map(row).collect()));
        }
    }
    found
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 1 } else { 40 }, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn merging_is_independent_of_order(one in profiles_data(ALL), two in profiles_data(ALL), three in profiles_data(ALL)) {
        let all = text::encode(&merge([&one, &two, &three]));
        prop_assert_eq!(&text::encode(&merge([&three, &one, &two])), &all);
        prop_assert_eq!(&text::encode(&merge([&merge([&two, &one]), &three])), &all);
        prop_assert_eq!(&text::encode(&merge([&merge([&one, &two, &three]), &ProfilesData::default()])), &all);
    }

    #[test]
    fn merging_preserves_the_total_weight(one in profiles_data(ALL), two in profiles_data(ALL)) {
        let both = merge([&one, &two]);
        for summary in types(&both) {
            let part = |data: &ProfilesData| types(data)
                .iter()
                .filter(|other| (&other.service, &other.type_name) == (&summary.service, &summary.type_name))
                .map(|other| other.total)
                .sum::<i64>();
            prop_assert_eq!(part(&one) + part(&two), summary.total);
        }
    }

    #[test]
    fn table_and_tree_contain_every_sample(data in profiles_data(ALL)) {
        for name in ["cpu", "wall", "alloc_space", "alloc_objects"] {
            let total: i64 = types(&data).iter().filter(|row| row.type_name == name).map(|row| row.total).sum();
            let table = top(&data, name, Granularity::Function);
            let tree = tree(&data, name);
            prop_assert_eq!(table.total, total);
            prop_assert_eq!(tree.nodes[0].total_weight, total);
            prop_assert_eq!(tree.nodes.iter().map(|node| node.self_weight).sum::<i64>(), total);
            let (folded, is_own) = (tree.folded(|_| false), |at: &FunctionLine| at.origin() == CodeOrigin::Own);
            prop_assert_eq!(folded.nodes[0].total_weight, total);
            prop_assert_eq!(neighbors(&folded, is_own).len(), neighbors(&tree, is_own).iter().filter(|row| row.weight.cum > 0).count());
            for function in neighbors(&folded, is_own) {
                let row = table.rows.iter().find(|row| row.location == function.location).expect("a row of the table");
                prop_assert_eq!(row.weight, function.weight);
            }
            let stackless: i64 = tree.nodes[0].self_weight;
            prop_assert_eq!(table.rows.iter().map(|row| row.weight.flat).sum::<i64>(), total - stackless);
            for (at, node) in tree.nodes.iter().enumerate().skip(1) {
                prop_assert!((node.parent as usize) < at);
                prop_assert!(node.total_weight <= tree.nodes[node.parent as usize].total_weight);
            }
            for row in &table.rows {
                prop_assert!(row.weight.flat <= row.weight.cum && row.weight.cum <= total);
            }
        }
    }

    #[test]
    fn own_weights_and_samples_without_own_code_add_up_to_the_total(data in profiles_data(ALL)) {
        let is_own = |at: &FunctionLine| at.origin() == CodeOrigin::Own;
        for name in ["cpu", "wall", "alloc_space"] {
            let stacks = stacks(&data, name);
            let of = |own: Option<&FunctionLine>| {
                let charged = stacks.iter().filter(|(_, stack)| stack.iter().find(|at| is_own(at)) == own);
                charged.map(|(weight, _)| weight).sum::<i64>()
            };
            for by in [Granularity::Function, Granularity::Line] {
                let table = top(&data, name, by);
                prop_assert_eq!(table.rows.iter().map(|row| row.own).sum::<i64>(), table.own);
                prop_assert_eq!(table.own + of(None), table.total);
                for row in &table.rows {
                    prop_assert!(row.own <= row.weight.cum);
                    prop_assert!(!is_own(&row.location) || row.own >= row.weight.flat);
                    if by == Granularity::Function {
                        prop_assert_eq!(row.own, of(Some(&row.location)));
                    }
                }
            }
        }
    }

    #[test]
    fn callers_and_callees_are_those_of_the_samples(data in profiles_data(ALL)) {
        for name in ["cpu", "alloc_space"] {
            let mut calls: BTreeMap<(FunctionLine, FunctionLine), i64> = BTreeMap::new();
            for (weight, stack) in stacks(&data, name) {
                let distinct: BTreeSet<_> = stack.windows(2).map(|pair| (pair[1].clone(), pair[0].clone())).collect();
                for call in distinct {
                    *calls.entry(call).or_default() += weight;
                }
            }
            let table = top(&data, name, Granularity::Function);
            let found = neighbors(&tree(&data, name), |_| true);
            prop_assert_eq!(found.len(), table.rows.len());
            for function in &found {
                let row = table.rows.iter().find(|row| row.location == function.location).expect("a row of the table");
                prop_assert_eq!(row.weight, function.weight);
                for (callee, weight) in &function.callees {
                    prop_assert_eq!(calls.get(&(function.location.clone(), callee.clone())), Some(weight));
                }
                let callers = function.callers.iter().filter(|(caller, _)| caller.function != "root");
                for (caller, weight) in callers {
                    prop_assert_eq!(calls.get(&(caller.clone(), function.location.clone())), Some(weight));
                }
            }
            let callees: usize = found.iter().map(|function| function.callees.len()).sum();
            prop_assert_eq!(callees, calls.len());
        }
    }

    #[test]
    fn focus_and_ignore_divide_the_samples(data in profiles_data(ALL)) {
        let total = |data: &ProfilesData| types(data).iter().map(|row| row.total).sum::<i64>();
        let pattern = regex_lite::Regex::new("[aeiou]").unwrap();
        let mut focused = data.clone();
        StackFilter { focus: Some(pattern.clone()), ignore: None }.apply(&mut focused);
        let mut rest = data.clone();
        StackFilter { focus: None, ignore: Some(pattern.clone()) }.apply(&mut rest);
        prop_assert_eq!(total(&focused) + total(&rest), total(&data));
        let has_match = |stack: &[FunctionLine]| {
            stack.iter().any(|at| pattern.is_match(&at.function) || pattern.is_match(&at.file))
        };
        for name in ["cpu", "wall", "alloc_space"] {
            prop_assert!(stacks(&focused, name).iter().all(|(_, stack)| has_match(stack)));
            prop_assert!(!stacks(&rest, name).iter().any(|(_, stack)| has_match(stack)));
        }
    }

    #[test]
    fn the_whole_call_tree_has_all_nodes_and_a_pruned_one_counts_the_others(data in profiles_data(ALL)) {
        let tree = tree(&data, "cpu");
        let all = call_tree(&tree, i64::MIN, u32::MAX);
        prop_assert_eq!(all.len(), tree.nodes.len() - 1);
        prop_assert!(all.iter().all(|row| row.omitted == 0));
        let some = call_tree(&tree, tree.nodes[0].total_weight / 4, 3);
        prop_assert!(some.iter().all(|row| row.depth <= 3 && row.cum >= tree.nodes[0].total_weight / 4));
        for (nth, row) in all.iter().enumerate() {
            let callees = all[nth + 1..].iter().take_while(|other| other.depth > row.depth);
            let direct = callees.filter(|other| other.depth == row.depth + 1);
            prop_assert!(direct.clone().map(|callee| callee.cum).is_sorted_by(|one, other| one >= other));
            prop_assert_eq!(direct.map(|callee| callee.cum).sum::<i64>() + row.flat, row.cum);
        }
    }

    #[test]
    fn labels_have_the_weight_of_their_samples(data in profiles_data(ALL)) {
        for name in ["cpu", "wall", "alloc_space"] {
            let table = labels(&data, name);
            let of_type = Filter { type_name: Some(name.to_owned()), ..Filter::default() };
            for key in table.keys.iter().filter(|key| !key.is_resource && key.key != "service.name") {
                for (value, weight) in &key.values {
                    let filter = Filter { labels: vec![LabelMatcher::equal(&key.key, value)], ..of_type.clone() };
                    let mut kept = filter.apply(&data);
                    let ProfilesData { dictionary, resources } = &mut kept;
                    // A resource may have an attribute of the same name. With the same value, its samples are counted there.
                    resources.retain(|resource| {
                        let mut attributes = resource.resource.iter();
                        !attributes.any(|it| it.key == key.key && it.value.as_ref().to_string() == *value)
                    });
                    for profile in resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
                        profile.samples.retain(|sample| {
                            dictionary.attributes_of(sample.attributes).any(|label| label.key == key.key)
                        });
                    }
                    prop_assert_eq!(types(&kept).iter().map(|row| row.total).sum::<i64>(), *weight);
                }
            }
        }
    }

    #[test]
    fn a_filter_and_its_complement_add_up_to_the_whole(data in profiles_data(ALL)) {
        let total = |data: &ProfilesData| types(data).iter().map(|row| row.total).sum::<i64>();
        let routed = Filter { labels: vec![LabelMatcher::equal("http.route", "/cart/{id}")], ..Filter::default() };
        let kept = routed.apply(&data);
        for (_, profile) in kept.profiles() {
            for sample in &profile.samples {
                prop_assert!(kept.dictionary.attributes_of(sample.attributes).any(|label| label.key == "http.route"));
            }
        }
        let mut rest = data.clone();
        for profile in rest.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            profile.samples.retain(|sample| {
                data.dictionary.attributes_of(sample.attributes).all(|label| label.key != "http.route")
            });
        }
        prop_assert_eq!(total(&kept) + total(&rest), total(&data));
        prop_assert_eq!(text::encode(&Filter::default().apply(&data)), text::encode(&data));
        let merged = |data: &ProfilesData| text::encode(&merge([data]));
        prop_assert_eq!(merged(&routed.apply(&merge([&data]))), merged(&kept), "filter and merge commute");
    }
}

fn two_spans() -> ProfilesData {
    let mut data = ProfilesData::default();
    let d = &mut data.dictionary;
    let mut samples = Vec::new();
    for (n, route) in [(1u8, "/cart"), (2, "/pay")] {
        let label = d.attribute("route", Value::String(route), "");
        let size = d.attribute("size", Value::Int(16), "By");
        samples.push(Sample {
            attributes: d.attribute_set(&[label, size]),
            link: d.link(Link { trace_id: [n; 16], span_id: [n; 8] }),
            values: vec![1, 1, 1],
            timestamps_unix_nano: vec![100, 200, 300],
            ..Sample::default()
        });
    }
    let profile = Profile {
        sample_type: ValueType::new("wall", "nanoseconds"),
        time_unix_nano: 100,
        duration_nano: 300,
        samples,
        ..Profile::default()
    };
    data.resources.push(ResourceProfiles {
        resource: vec![Attribute::string("service.name", "checkout"), Attribute::int("process.pid", 7)],
        profiles: vec![profile],
        ..ResourceProfiles::default()
    });
    data
}

#[test]
fn each_condition_of_a_filter_applies() {
    let data = two_spans();
    let total = |filter: Filter| types(&filter.apply(&data)).iter().map(|row| row.total).sum::<i64>();
    let label = |key: &str, value: &str| Filter { labels: vec![LabelMatcher::equal(key, value)], ..Filter::default() };
    assert_eq!(total(Filter::default()), 6);
    assert_eq!(total(Filter { trace_id: Some([1; 16]), ..Filter::default() }), 3);
    assert_eq!(total(Filter { span_id: Some([2; 8]), ..Filter::default() }), 3);
    assert_eq!(total(Filter { trace_id: Some([1; 16]), span_id: Some([2; 8]), ..Filter::default() }), 0);
    assert_eq!(total(Filter { service: Some("checkout".into()), ..Filter::default() }), 6);
    assert_eq!(total(Filter { service: Some("other".into()), ..Filter::default() }), 0);
    assert_eq!(total(Filter { type_name: Some("wall".into()), ..Filter::default() }), 6);
    assert_eq!(total(Filter { type_name: Some("cpu".into()), ..Filter::default() }), 0);
    assert_eq!(total(label("route", "/pay")), 3);
    assert_eq!(total(label("size", "16")), 6, "numbers are compared as text");
    assert_eq!(total(label("process.pid", "7")), 6, "a resource's attribute is a label of all its samples");
    assert_eq!(total(label("route", "/none")), 0);
    let condition = |text: &str| Filter { labels: vec![LabelMatcher::parse(text).unwrap()], ..Filter::default() };
    assert_eq!(total(condition("route!=/pay")), 3);
    assert_eq!(total(condition("route!~/pa.*|/none")), 3);
    assert_eq!(total(condition("process.pid=~[0-9]")), 6);
    assert_eq!(total(condition("absent!=x")), 6, "an absent label differs from every text");
    assert_eq!(total(Filter { from_unix_nano: Some(150), to_unix_nano: Some(300), ..Filter::default() }), 2);
    assert_eq!(total(Filter { from_unix_nano: Some(400), ..Filter::default() }), 0);
    assert_eq!(total(Filter { to_unix_nano: Some(100), ..Filter::default() }), 0);
}

/// One sample for each stack, leaf first, of names and files.
fn stacks_of(stacks: &[(&[(&str, &str)], i64)]) -> ProfilesData {
    let mut data = ProfilesData::default();
    let d = &mut data.dictionary;
    let of_stack = |(frames, weight): &(&[(&str, &str)], i64)| {
        let stack = stack_of(d, frames.iter().map(|(name, file)| (*name, *file, 0, 1)));
        Sample { stack, values: vec![*weight], ..Sample::default() }
    };
    let samples = stacks.iter().map(of_stack).collect();
    let profile = Profile { sample_type: ValueType::new("cpu", "nanoseconds"), samples, ..Profile::default() };
    data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

#[test]
fn libraries_and_the_runtime_are_charged_to_the_nearest_own_caller() {
    let handle = ("handle", "/srv/shop/app.py");
    let price = ("price", "/srv/shop/price.py");
    let loads = ("loads", "/usr/lib/python3.11/json/decoder.py");
    let data = stacks_of(&[
        (&[("[gc]", ""), loads, price, handle], 5),
        (&[price, loads, handle], 3),
        (&[handle], 2),
        (&[loads, handle, handle], 7),
        (&[("[gc]", ""), loads], 11),
    ]);
    let table = top(&data, "cpu", Granularity::Function);
    let own = |name: &str| {
        let row = table.rows.iter().find(|row| row.location.function == name).expect("a row");
        (row.weight.flat, row.own, row.weight.cum)
    };
    assert_eq!((table.own, table.total), (17, 28));
    assert_eq!([own("price"), own("handle")], [(3, 8, 8), (2, 9, 17)]);
    assert_eq!([own("loads"), own("[gc]")], [(7, 0, 26), (16, 0, 16)]);
}

#[test]
fn recursion_counts_once_in_cum_and_only_the_leaf_in_flat() {
    let mut data = ProfilesData::default();
    let calls = [("fib", "", 0, 1), ("fib", "", 0, 2), ("fib", "", 0, 1), ("main", "", 0, 9)];
    let stack = stack_of(&mut data.dictionary, calls);
    let samples = vec![Sample { stack, values: vec![10], ..Sample::default() }];
    let profile = Profile { sample_type: ValueType::new("wall", "nanoseconds"), samples, ..Profile::default() };
    data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
    let rows = |by| {
        let table = top(&data, "wall", by);
        assert_eq!(table.unit, "nanoseconds");
        let row = |row: TopRow| (row.location.function, row.location.line, row.weight.flat, row.weight.cum);
        table.rows.into_iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(rows(Granularity::Function), [("fib".to_owned(), 0, 10, 10), ("main".to_owned(), 0, 0, 10)]);
    let lines = [("fib".to_owned(), 1, 10, 10), ("fib".to_owned(), 2, 0, 10), ("main".to_owned(), 9, 0, 10)];
    assert_eq!(rows(Granularity::Line), lines);
    let names: Vec<String> = {
        let tree = tree(&data, "wall");
        tree.nodes.iter().map(|node| tree.functions[node.function as usize].name.clone()).collect()
    };
    assert_eq!(names, ["root", "main", "fib", "fib", "fib"]);
}

/// A window of one process with a weight per function.
fn window_of(pid: Option<i64>, type_name: &str, end_s: u64, weights: &[(&str, i64)]) -> ProfilesData {
    let mut data = ProfilesData::default();
    let d = &mut data.dictionary;
    let of_function = |(name, weight): &(&str, i64)| {
        let label = d.attribute("function", Value::String(name), "");
        let attributes = d.attribute_set(&[label]);
        let stack = stack_of(d, [(*name, "app.py", 0, 1)]);
        Sample { stack, attributes, values: vec![*weight], ..Sample::default() }
    };
    let samples = weights.iter().map(of_function).collect();
    let profile = Profile {
        sample_type: ValueType::new(type_name, "bytes"),
        time_unix_nano: (end_s - 10) * 1_000_000_000,
        duration_nano: 10_000_000_000,
        samples,
        ..Profile::default()
    };
    let resource = pid.map(|pid| Attribute::int("process.pid", pid)).into_iter().collect();
    data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

/// A window of anonymous functions of one file: start line, line and weight of each.
fn anonymous(functions: &[(i64, i64, i64)]) -> ProfilesData {
    let mut data = ProfilesData::default();
    let d = &mut data.dictionary;
    let of_function = |(start_line, line, weight): &(i64, i64, i64)| {
        let stack = stack_of(d, [("(anonymous)", "app.js", *start_line, *line)]);
        Sample { stack, values: vec![*weight], ..Sample::default() }
    };
    let samples = functions.iter().map(of_function).collect();
    let profile = Profile { sample_type: ValueType::new("cpu", "nanoseconds"), samples, ..Profile::default() };
    data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

#[test]
fn functions_of_one_name_and_file_are_distinct_by_their_start_line() {
    let data = anonymous(&[(10, 11, 5), (20, 21, 3), (10, 12, 1), (0, 30, 2)]);
    let rows = |by| -> Vec<(i64, i64)> {
        top(&data, "cpu", by).rows.into_iter().map(|row| (row.location.line, row.weight.flat)).collect()
    };
    assert_eq!(rows(Granularity::Function), [(10, 6), (20, 3), (0, 2)]);
    assert_eq!(rows(Granularity::Line), [(11, 5), (21, 3), (30, 2), (12, 1)]);
    let tree = tree(&data, "cpu");
    let nodes = tree.nodes.iter().skip(1);
    let nodes: Vec<_> =
        nodes.map(|node| (tree.functions[node.function as usize].start_line, node.self_weight)).collect();
    assert_eq!(nodes, [(0, 2), (10, 6), (20, 3)]);
    let found = neighbors(&tree, |at| at.line == 20);
    assert_eq!((found.len(), found[0].weight.flat), (1, 3));
}

#[test]
fn versions_are_compared_without_the_start_lines_of_their_functions() {
    let sides = [anonymous(&[(10, 11, 5), (20, 21, 3)]), anonymous(&[(14, 15, 5), (24, 25, 3)])].map(|data| {
        let mut windows = WindowSums::with_paths(Granularity::Function, Compared::Flat);
        windows.add(&data);
        windows
    });
    let sides = sides.each_ref();
    let table = diff(sides, "cpu", false);
    assert_eq!((table.rows.len(), table.equal), (0, 1));
    assert_eq!(diff_tree(sides, &table, false).nodes.len(), 2);
}

#[test]
fn of_a_gauge_the_newest_window_of_each_process_remains() {
    let old = window_of(Some(1), "inuse_space", 10, &[("cache", 100), ("gone", 7)]);
    let new = window_of(Some(1), "inuse_space", 20, &[("cache", 150)]);
    let other = window_of(Some(2), "inuse_space", 10, &[("cache", 1000)]);
    let space = |data: &ProfilesData, type_name| {
        let row = |row: TopRow| (row.location.function, row.weight.flat);
        top(data, type_name, Granularity::Function).rows.into_iter().map(row).collect::<Vec<_>>()
    };
    for parts in [[&old, &new, &other], [&new, &other, &old], [&other, &old, &new]] {
        assert_eq!(space(&merge(parts), "inuse_space"), [("cache".to_owned(), 1150)]);
    }
    // Also where the older window has another period, or a comment on a limit.
    let mut limited = window_of(Some(1), "inuse_space", 10, &[("cache", 100)]);
    let comment = limited.dictionary.attribute("pprof.profile.comment", Value::String("limited by cpu_budget"), "");
    let attributes = limited.dictionary.attribute_set(&[comment]);
    let profile = &mut limited.resources[0].profiles[0];
    (profile.period, profile.attributes) = (1 << 20, attributes);
    assert_eq!(space(&merge([&limited, &new]), "inuse_space"), [("cache".to_owned(), 150)]);
    assert_eq!(space(&merge([&new, &limited]), "inuse_space"), [("cache".to_owned(), 150)]);
    // Merged windows keep their own time, so that a later merge compares it.
    assert_eq!(space(&merge([&merge([&old, &new]), &old]), "inuse_space"), [("cache".to_owned(), 150)]);
    // Sums add up, and so do gauges of unknown processes, such as plain pprof files.
    let allocated = [10, 20].map(|end_s| window_of(Some(1), "alloc_space", end_s, &[("cache", 100)]));
    assert_eq!(space(&merge(&allocated), "alloc_space"), [("cache".to_owned(), 200)]);
    let unknown = [10, 20].map(|end_s| window_of(None, "inuse_space", end_s, &[("cache", 100)]));
    assert_eq!(space(&merge(&unknown), "inuse_space"), [("cache".to_owned(), 200)]);
}

#[test]
fn memory_that_was_freed_does_not_return_through_a_filter() {
    let old = window_of(Some(1), "inuse_space", 10, &[("cache", 100), ("gone", 7)]);
    let new = window_of(Some(1), "inuse_space", 20, &[("cache", 150)]);
    let filter = Filter { labels: vec![LabelMatcher::equal("function", "gone")], ..Filter::default() };
    assert_eq!(merge([&filter.apply(&old)]).sample_count(), 1);
    assert_eq!(merge([&filter.apply(&old), &filter.apply(&new)]).sample_count(), 0);
}
