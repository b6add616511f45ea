//! Profiles of DevTools: their weights, names and limits, and recorded files.

use proptest::arbitrary::any as arbitrary;
use proptest::prelude::{prop, prop_assert_eq, proptest, ProptestConfig, Strategy};

use crate::decode::{any, DecodeLimits, Format};
use crate::query::{self, Granularity};
use spanprof_profile::encode::folded;
use spanprof_profile::transform::tree;
use spanprof_profile::ProfilesData;

const CPU: &[u8] = include_bytes!("../../tests/it/profiles/node-20.cpuprofile");
const HEAP: &[u8] = include_bytes!("../../tests/it/profiles/node-20.heapprofile");

fn read(bytes: &[u8]) -> (Format, ProfilesData) {
    any(bytes, &DecodeLimits::default()).unwrap()
}

fn error(text: &str) -> String {
    any(text.as_bytes(), &DecodeLimits { stack_depth: 8, ..DecodeLimits::default() }).unwrap_err().to_string()
}

#[test]
fn a_recorded_cpu_profile_has_the_time_of_each_function_and_line() {
    let (format, data) = read(CPU);
    assert_eq!(format, Format::DevToolsCpu);
    let top = query::top(&data, "wall", Granularity::Function);
    assert_eq!((top.unit.as_str(), top.total), ("nanoseconds", 670_536_000));
    let price = &top.rows[0];
    assert_eq!((price.at.function.as_str(), price.at.file.as_str(), price.at.line), ("price", "/srv/shop/shop.js", 1));
    assert_eq!(price.weight.flat, 422_361_000);
    assert_eq!(top.rows[1].at.function, "(garbage collector)");
    assert!(top.rows.iter().all(|row| row.at.function != "(root)"));
    let cart = top.rows.iter().find(|row| row.at.function == "cart").unwrap();
    assert!(cart.weight.cum > 400_000_000 && cart.weight.flat < cart.weight.cum, "{cart:?}");
    let lines = query::top(&data, "wall", Granularity::Line);
    let of_price = lines.rows.iter().filter(|row| row.at.function == "price" && row.at.line == 1);
    assert_eq!(of_price.map(|row| row.weight.flat).sum::<i64>(), 422_361_000);
    assert_eq!(data.resources[0].profiles[0].duration_nano, 690_130_000);
}

#[test]
fn a_recorded_heap_profile_has_the_objects_in_use() {
    let (format, data) = read(HEAP);
    assert_eq!(format, Format::DevToolsHeap);
    let top = query::top(&data, "inuse_space", Granularity::Function);
    assert_eq!((top.unit.as_str(), top.total), ("bytes", 7_938_648));
    assert_eq!((top.rows[0].at.function.as_str(), top.rows[0].weight.flat), ("keep", 7_471_144));
    let deepest =
        data.resources[0].profiles[0].samples.iter().map(|sample| data.dictionary.get_stack(sample.stack).len());
    assert_eq!(deepest.max(), Some(99), "the parser has no limit of its own");
}

#[test]
fn names_and_places_are_those_of_the_call_frames() {
    let text = r#" { "startTime": 0, "endTime": 10, "samples": [2, 3], "timeDeltas": [1, 4], "nodes": [
        {"id": 1, "callFrame": {"functionName": "(root)", "url": "", "lineNumber": -1}, "children": [2]},
        {"id": 2, "callFrame": {"functionName": "", "url": "file:///srv/a%20b.js", "lineNumber": 6}, "children": [3]},
        {"id": 3, "callFrame": {"functionName": "parse", "url": "node:util", "lineNumber": 0},
            "positionTicks": [{"line": 4, "ticks": 1}, {"line": 7, "ticks": 2}]}]}"#;
    let (format, data) = read(text.as_bytes());
    assert_eq!(format, Format::DevToolsCpu);
    let top = query::top(&data, "wall", Granularity::Line);
    let rows: Vec<_> = top
        .rows
        .iter()
        .map(|row| (row.at.function.as_str(), row.at.file.as_str(), row.at.line, row.weight.flat))
        .collect();
    assert_eq!(
        rows,
        [("(anonymous)", "/srv/a b.js", 0, 4_000), ("parse", "node:util", 7, 3_334), ("parse", "node:util", 4, 1_666),]
    );
}

#[test]
fn hits_count_where_a_profile_has_no_times() {
    let text = r#"{"nodes":[{"id":1,"callFrame":{"functionName":"(root)"},"hitCount":0},
        {"id":2,"parent":1,"callFrame":{"functionName":"a"},"hitCount":3},
        {"id":3,"parent":2,"callFrame":{"functionName":"b"},"hitCount":1}],"startTime":100,"endTime":140}"#;
    let (_, data) = read(text.as_bytes());
    assert_eq!(folded::encode(&tree(&data, "wall")), "a 30000\na;b 10000\n");
}

#[test]
fn malformed_profiles_are_rejected_with_their_path() {
    let cpu = |nodes: &str, samples: &str| {
        error(&format!(r#"{{"nodes":[{nodes}],"startTime":0,"endTime":9,"samples":[{samples}],"timeDeltas":[1]}}"#))
    };
    let node = |id: u32, children: &str| {
        format!(r#"{{"id":{id},"callFrame":{{"functionName":"f{id}"}},"children":[{children}]}}"#)
    };
    let chain: Vec<String> = (1..20).map(|id| node(id, &(id + 1).to_string())).chain([node(20, "")]).collect();
    for (text, words) in [
        (cpu(&node(1, ""), "7"), "samples[0]: expected the id of a node, got 7"),
        (cpu(&node(1, "7"), "1"), "nodes[0].children: expected the id of a node, got 7"),
        (cpu(&[node(1, ""), node(1, "")].join(","), "1"), "nodes[1].id: expected a unique id, got 1"),
        (cpu(&[node(1, "2"), node(2, "1")].join(","), "1"), "without a cycle"),
        (cpu(&chain.join(","), "20"), "at most 8 callers"),
        (error(r#"{"nodes":[{"callFrame":{}}]}"#), "expected nodes, startTime and endTime, got missing field"),
        (error(r#"{"head":{"callFrame":{},"selfSize":"x"}}"#), "cannot read .heapprofile"),
    ] {
        assert!(text.contains(words), "{text}");
    }
    let nested = r#"{"callFrame":{},"selfSize":1,"children":["#;
    let deep = format!(r#"{{"head":{}{}}}"#, nested.repeat(100_000), "]}".repeat(100_000));
    assert!(error(&deep).contains("stacks of at most 256 frames"), "{}", error(&deep));
}

/// A tree of nodes: each hangs below an earlier one.
fn nodes() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((arbitrary::<prop::sample::Index>(), 0u64..1000), 1..40).prop_map(|nodes| {
        nodes.iter().enumerate().map(|(nth, (parent, weight))| (parent.index(nth + 1), *weight)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_cpu_profile_keeps_its_whole_time(nodes in nodes(), samples in prop::collection::vec((arbitrary::<prop::sample::Index>(), 0u32..500), 1..60)) {
        let mut text = r#"{"nodes":[{"id":1,"callFrame":{"functionName":"(root)"}}"#.to_owned();
        for (nth, (parent, line)) in nodes.iter().enumerate() {
            let (id, parent) = (nth + 2, parent + 1);
            text += &format!(r#",{{"id":{id},"parent":{parent},"callFrame":{{"functionName":"f{nth}","lineNumber":{line}}},
                "positionTicks":[{{"line":{line},"ticks":{line}}},{{"line":1,"ticks":1}}]}}"#);
        }
        let ids: Vec<String> = samples.iter().map(|(node, _)| (node.index(nodes.len()) + 2).to_string()).collect();
        let deltas: Vec<String> = samples.iter().map(|(_, delta)| delta.to_string()).collect();
        let sum: u32 = samples.iter().map(|(_, delta)| *delta).sum();
        let end = sum + 7;
        text += &format!(r#"],"startTime":0,"endTime":{end},"samples":[{}],"timeDeltas":[{}]}}"#, ids.join(","), deltas.join(","));
        let (_, data) = read(text.as_bytes());
        let top = query::top(&data, "wall", Granularity::Function);
        prop_assert_eq!(top.total, i64::from(end - samples[0].1) * 1000);
    }

    #[test]
    fn a_heap_profile_keeps_its_bytes(nodes in nodes()) {
        // The children of a node, from the last node on.
        let mut texts = vec![String::new(); nodes.len() + 1];
        for (nth, (parent, bytes)) in nodes.iter().enumerate().rev() {
            let children = std::mem::take(&mut texts[nth + 1]);
            let children = children.trim_end_matches(',');
            let node = format!(r#"{{"callFrame":{{"functionName":"f{nth}"}},"selfSize":{bytes},"children":[{children}]}},"#);
            texts[*parent].insert_str(0, &node);
        }
        let children = texts[0].trim_end_matches(',');
        let text = format!(r#"{{"head":{{"callFrame":{{"functionName":"(root)"}},"selfSize":0,"children":[{children}]}}}}"#);
        let whole: u64 = nodes.iter().map(|(_, bytes)| bytes).sum();
        let (_, data) = read(text.as_bytes());
        prop_assert_eq!(query::top(&data, "inuse_space", Granularity::Function).total, whole as i64);
        let calls = tree(&data, "inuse_space");
        // A node's stack is that of the tree of the file.
        for (nth, (_, bytes)) in nodes.iter().enumerate().filter(|(_, (_, bytes))| *bytes > 0) {
            let name = format!("f{nth}");
            let own: i64 = calls.nodes.iter().filter(|node| calls.functions[node.function as usize].name == name).map(|node| node.self_weight).sum();
            prop_assert_eq!(own, *bytes as i64);
        }
    }

    #[test]
    fn corrupted_profiles_are_decoded_or_rejected(heap in arbitrary::<bool>(), changes in prop::collection::vec((arbitrary::<prop::sample::Index>(), arbitrary::<u8>()), 1..6)) {
        let mut bytes = if heap { HEAP } else { CPU }.to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = any(&bytes, &DecodeLimits::default());
    }
}
