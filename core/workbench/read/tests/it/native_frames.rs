//! Native frames above the managed code that called them: the same work recorded without and with them, as before and after an update of
//! the profiler.

use spanprof_profile::{Attribute, Link, Profile, ProfilesData, ResourceProfiles, Sample, Value, ValueType};
use spanprof_read::diagnosis::{Diagnosis, Fact, Rule};
use spanprof_read::query::{
    diff, diff_tree, folded_diff_tree, span_baseline, span_time, top, Compared, DiffTable, DiffTree, Granularity,
    SpanSubject, SpanTotals, TopTable, WindowSums,
};

use crate::stacks::{stack_of, CalledFunction};

const INTERVAL_NS: i64 = 10_000_000;
const WINDOWS: u64 = 20;

const BLAS: CalledFunction = ("dgemm_kernel", "/venv/lib/python3.11/site-packages/numpy.libs/libopenblas.so", 0, 0);
const MATMUL: CalledFunction =
    ("cblas_matrixproduct", "/venv/lib/python3.11/site-packages/numpy/_multiarray_umath.so", 0, 0);
const SORT: CalledFunction = ("list_sort", "/usr/bin/python3.11", 0, 0);
const SCAN: CalledFunction = ("_json.c_scanstring", "/usr/bin/python3.11", 0, 0);
const THREAD: CalledFunction = ("start_thread", "/lib/libc.so.6", 0, 0);
const DECODE: CalledFunction = ("raw_decode", "/usr/lib/python3.11/json/decoder.py", 30, 33);
const PREDICT: CalledFunction = ("predict", "/srv/app.py", 10, 12);
const RANK: CalledFunction = ("rank", "/srv/app.py", 20, 22);
const KEY: CalledFunction = ("key", "/srv/app.py", 30, 31);
const MAIN: CalledFunction = ("main", "/srv/app.py", 1, 2);

/// Stacks, leaf first, with native code, and their number of samples in a window. `slower` is the factor of the matrix product.
fn work(slower: i64) -> Vec<(Vec<CalledFunction<'static>>, i64)> {
    vec![
        (vec![BLAS, MATMUL, PREDICT, MAIN], 60 * slower),
        (vec![PREDICT, MAIN], 10),
        (vec![SCAN, DECODE, PREDICT, MAIN], 20),
        (vec![KEY, SORT, RANK, MAIN], 20),
        (vec![BLAS, THREAD], 30),
    ]
}

/// The samples of the same work without native frames: threads without managed code have the leaf only.
fn without_native(stack: &[CalledFunction<'static>]) -> Vec<CalledFunction<'static>> {
    let is_managed = |call: &&CalledFunction| call.1.ends_with(".py");
    let managed: Vec<_> = stack.iter().filter(is_managed).copied().collect();
    if managed.is_empty() {
        stack[..1].to_vec()
    } else {
        managed
    }
}

/// Windows of a version of the service; each sample belongs to a request, three of which are in a window.
fn windows(version: &str, first: u64, slower: i64, has_native: bool) -> Vec<ProfilesData> {
    let window = |nth: u64| {
        let mut data = ProfilesData::default();
        let dictionary = &mut data.dictionary;
        let mut samples = Vec::new();
        for (stack, count) in work(slower) {
            let stack = stack_of(dictionary, if has_native { stack } else { without_native(&stack) });
            let endpoint = dictionary.attribute("endpoint", Value::String("/predict"), "");
            let attributes = dictionary.attribute_set(&[endpoint]);
            for request in 0..3 {
                let span = (first + nth) * 3 + request + 1;
                let link = dictionary.link(Link { trace_id: [1; 16], span_id: span.to_be_bytes() });
                let values = vec![(count + (nth % 3) as i64) * INTERVAL_NS];
                samples.push(Sample { stack, attributes, link, values, ..Sample::default() });
            }
        }
        let profile = Profile {
            sample_type: ValueType::new("cpu", "nanoseconds"),
            period_type: ValueType::new("cpu", "nanoseconds"),
            period: INTERVAL_NS,
            time_unix_nano: (first + nth) * 10_000_000_000,
            duration_nano: 10_000_000_000,
            samples,
            ..Profile::default()
        };
        let resource = vec![
            Attribute::string("service.name", "shop"),
            Attribute::string("service.version", version),
            Attribute::int("process.pid", first as i64),
        ];
        data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
        data
    };
    (0..WINDOWS).map(window).collect()
}

fn before() -> Vec<ProfilesData> {
    windows("1", 0, 1, false)
}

fn after(slower: i64) -> Vec<ProfilesData> {
    windows("2", WINDOWS, slower, true)
}

fn compared(sides: [&[ProfilesData]; 2], by: Granularity, compared: Compared) -> (DiffTable, DiffTree, DiffTree) {
    let sides = sides.map(|windows| {
        let mut sums = WindowSums::with_paths(by, compared).and_folded_paths();
        windows.iter().for_each(|window| sums.add(window));
        sums
    });
    let sides = sides.each_ref();
    let table = diff(sides, "cpu", true);
    let tree = diff_tree(sides, &table, true);
    let folded = folded_diff_tree(sides, &table, &tree, true);
    (table, tree, folded)
}

fn grown(table: &DiffTable) -> Vec<&str> {
    let mut names: Vec<&str> =
        table.rows.iter().filter(|row| row.has_grown).map(|row| row.location.function.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn native_frames_on_one_side_only_are_no_difference() {
    for sides in [[&before()[..], &after(1)], [&after(1), &before()]] {
        for by in [Granularity::Function, Granularity::Line] {
            for weight in [Compared::Flat, Compared::Cum] {
                let (table, tree, folded) = compared(sides, by, weight);
                assert_eq!((table.rows.as_slice(), table.tested > 2), (&[][..], true), "{by:?} {weight:?}");
                assert_eq!(table.lacks_native.iter().filter(|lacks| **lacks).count(), 1);
                assert!(tree.one_sided.is_empty(), "{:?}", tree.one_sided);
                for tree in [tree, folded] {
                    assert!(tree.nodes.iter().all(|node| !node.is_significant));
                }
            }
        }
    }
    // A range that begins before the update.
    let mixed = [before(), after(1)].concat();
    let (table, ..) = compared([&mixed, &after(1)], Granularity::Function, Compared::Flat);
    assert!(grown(&table).is_empty() && table.lacks_native == [true, false], "{table:?}");
}

#[test]
fn a_regression_behind_an_update_is_that_of_the_function_that_calls_native_code() {
    let (table, ..) = compared([&before(), &after(2)], Granularity::Function, Compared::Flat);
    assert_eq!(grown(&table), ["predict"]);
}

#[test]
fn native_functions_and_their_callers_are_compared_where_both_sides_have_them() {
    let (table, tree, _) = compared([&after(1), &after(2)], Granularity::Function, Compared::Flat);
    assert_eq!((grown(&table), table.lacks_native), (vec!["dgemm_kernel", "predict"], [false; 2]));
    let row = |name: &str| table.rows.iter().find(|row| row.location.function == name).expect(name);
    let per_window = |weight: i64| weight / INTERVAL_NS / 3 / WINDOWS as i64;
    let flat = |name: &str| per_window(row(name).baseline.flat);
    assert_eq!((flat("dgemm_kernel"), flat("predict"), flat("raw_decode")), (91, 71, 20));
    assert!(tree.functions.iter().any(|function| function.name == "cblas_matrixproduct"), "the paths have them too");
}

/// Rows of a table by name: self weight, with native code, own and total weight, in samples of a request and window.
fn row(table: &TopTable, name: &str, line: i64) -> [i64; 4] {
    let is_row = |row: &&spanprof_read::query::TopRow| row.location.function == name && row.location.line == line;
    let row = table.rows.iter().find(is_row).unwrap_or_else(|| panic!("{name}:{line} in {table:?}"));
    [row.weight.flat, row.with_native, row.own, row.weight.cum].map(|weight| weight / INTERVAL_NS / 3)
}

#[test]
fn a_table_has_native_functions_with_their_self_time_and_their_callers_with_it() {
    let data = &after(1)[0];
    let table = top(data, "cpu", Granularity::Function);
    assert_eq!(row(&table, "dgemm_kernel", 0), [90, 90, 0, 90]);
    assert_eq!(row(&table, "predict", 10), [10, 70, 90, 90]);
    assert_eq!(row(&table, "raw_decode", 30), [0, 20, 0, 20]);
    assert_eq!(row(&table, "list_sort", 0), [0, 0, 0, 20]);
    let table = top(data, "cpu", Granularity::Line);
    assert_eq!(row(&table, "predict", 12), [70, 70, 90, 90]);
    assert_eq!(row(&table, "dgemm_kernel", 0), [30, 30, 0, 90], "that of threads without managed code");
    assert_eq!(table.rows.iter().map(|row| row.weight.flat).sum::<i64>(), table.total);
}

#[test]
fn findings_name_the_caller_and_its_native_code_and_no_regression_of_an_update() {
    let mut diagnosis = Diagnosis::default();
    for window in before().iter().chain(&after(1)) {
        diagnosis.add(window);
    }
    let findings = diagnosis.findings();
    assert!(findings.iter().all(|finding| finding.rule != Rule::Regression), "{findings:#?}");
    let hottest = |windows: &[ProfilesData]| {
        let mut diagnosis = Diagnosis::default();
        windows.iter().for_each(|window| diagnosis.add(window));
        let findings = diagnosis.findings();
        findings.into_iter().find(|finding| finding.rule == Rule::HotCode).expect("the hottest function")
    };
    let (old, new) = (hottest(&before()), hottest(&after(1)));
    assert_eq!((&old.function, old.share), (&new.function, new.share));
    for fact in ["self", "line", "share_of_line", "callees"] {
        let value = |finding: &spanprof_read::diagnosis::Finding| {
            let member = finding.facts.iter().find(|(name, _)| *name == fact);
            member.unwrap_or_else(|| panic!("no {fact}")).1.clone()
        };
        assert_eq!(value(&old), value(&new), "{fact}");
    }
    let native = new.facts.iter().find(|(name, _)| *name == "native_code").expect("native code");
    let Fact::Functions(rows, _) = &native.1 else { panic!("{native:?}") };
    assert_eq!(
        rows.iter().map(|(function, _)| &*function.function).collect::<Vec<_>>(),
        ["dgemm_kernel", "_json.c_scanstring"]
    );
}

#[test]
fn a_request_behind_an_update_does_not_differ_from_those_before_it() {
    let all = [before(), after(1)].concat();
    let mut totals = SpanTotals::with_categories(None);
    let mut functions = SpanTotals::with_functions(None, "cpu", Granularity::Function);
    for window in &all {
        totals.add(window);
        functions.add(window);
    }
    let link = Link { trace_id: [1; 16], span_id: (WINDOWS * 3 + 1).to_be_bytes() };
    let time = span_time(&totals, SpanSubject::Span(link)).expect("a request of the second version");
    for compared in [None, Some(Compared::Flat), Some(Compared::Cum)] {
        let baseline = span_baseline(&functions, &time, compared).expect("a baseline");
        let differ: Vec<_> = baseline.rows.iter().filter(|row| row.is_significant).collect();
        assert!(differ.is_empty() && baseline.tested > 2, "{compared:?}: {differ:#?}");
        assert_eq!(baseline.total.weight, time.subject.weight("cpu"));
    }
}
