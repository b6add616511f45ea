//! The rules of the diagnosis: each finds the problem of a synthetic program, and is silent about a healthy one.

use crate::draws::Draws;
use crate::stacks::stack_of;
use spanprof_profile::encode::pprof::names::COMMENT;
use spanprof_profile::{Attribute, Profile, ProfilesData, ResourceProfiles, Sample, Value, ValueType};
use spanprof_read::diagnosis::{Diagnosis, Fact, Finding, FindingSeverity, Rule};

const WINDOW_NS: u64 = 10_000_000_000;
/// 100 Hz.
const INTERVAL_NS: i64 = 10_000_000;
const MS: i64 = 1_000_000;
const MIB: i64 = 1 << 20;

/// One sample: functions from the root, weight, labels. A name that begins with `lib.` is of the standard library, one with a bracket has
/// no file, and `name:7` is on line 7.
type Row<'a> = (&'a str, i64, &'a [(&'a str, &'a str)]);

#[derive(Clone, Copy)]
struct Shape<'a> {
    type_name: &'a str,
    unit: &'a str,
    interval: i64,
    /// Number of the window.
    number: u64,
    version: &'a str,
    comment: &'a str,
}

const fn of_type(type_name: &str) -> Shape<'_> {
    Shape { type_name, unit: "nanoseconds", interval: 1, number: 0, version: "", comment: "" }
}

const CPU: Shape = Shape { interval: INTERVAL_NS, ..of_type("cpu") };
const HEAP: Shape = Shape { unit: "bytes", interval: 512 << 10, ..of_type("inuse_space") };

fn window(shape: Shape, rows: &[Row]) -> ProfilesData {
    let mut data = ProfilesData::default();
    let dictionary = &mut data.dictionary;
    let mut samples = Vec::new();
    for (stack, weight, labels) in rows {
        let calls = stack.split(';').rev().map(|frame| {
            let (name, line) = frame.rsplit_once(':').unwrap_or((frame, "1"));
            let file = match name {
                _ if name.starts_with(['[', '(']) || name == "GC" => "",
                "lib.Handle._run" => "/usr/lib/python3.11/asyncio/events.py",
                _ if name.starts_with("node:") => name,
                _ if name.starts_with("lib.") => "/usr/lib/python3.11/lib.py",
                _ => "/srv/shop/app.py",
            };
            (name, file, 0, line.parse().unwrap())
        });
        let stack = stack_of(dictionary, calls);
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| dictionary.attribute(key, Value::String(value), "")).collect();
        let attributes = dictionary.attribute_set(&labels);
        samples.push(Sample { stack, attributes, values: vec![*weight], ..Sample::default() });
    }
    let comment: Vec<_> = match shape.comment {
        "" => Vec::new(),
        text => vec![dictionary.attribute(COMMENT, Value::String(text), "")],
    };
    let profile = Profile {
        sample_type: ValueType::new(shape.type_name, shape.unit),
        period_type: ValueType::new(shape.type_name, shape.unit),
        period: shape.interval,
        time_unix_nano: shape.number * WINDOW_NS,
        duration_nano: WINDOW_NS,
        attributes: dictionary.attribute_set(&comment),
        samples,
        ..Profile::default()
    };
    let mut resource = vec![Attribute::string("service.name", "shop"), Attribute::int("process.pid", 7)];
    if !shape.version.is_empty() {
        resource.push(Attribute::string("service.version", shape.version));
    }
    data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

fn findings(windows: &[ProfilesData]) -> Vec<Finding> {
    let mut diagnosis = Diagnosis::default();
    windows.iter().for_each(|window| diagnosis.add(window));
    diagnosis.findings()
}

/// The rules of the findings without observations.
fn rules(windows: &[ProfilesData]) -> Vec<Rule> {
    alarms(windows).iter().map(|finding| finding.rule).collect()
}

/// The findings without observations.
fn alarms(windows: &[ProfilesData]) -> Vec<Finding> {
    let is_alarm = |finding: &Finding| finding.rule.severity() != FindingSeverity::Observation;
    findings(windows).into_iter().filter(is_alarm).collect()
}

/// The only finding of its severity.
fn found(windows: &[ProfilesData], rule: Rule, function: &str) -> Finding {
    let mut all = findings(windows);
    all.retain(|finding| finding.rule.severity() == rule.severity());
    assert_eq!(all.len(), 1, "{all:#?}");
    let finding = all.remove(0);
    let name = finding.function.as_ref().map_or("", |at| at.function.as_str());
    assert_eq!((finding.rule, name, finding.service.as_str()), (rule, function, "shop"), "{finding:#?}");
    finding
}

fn fact<'f>(finding: &'f Finding, name: &str) -> &'f Fact {
    &finding.facts.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}: {finding:#?}")).1
}

fn names(fact: &Fact) -> Vec<&str> {
    let Fact::Functions(rows, _) = fact else { panic!("{fact:?}") };
    rows.iter().map(|(at, _)| at.function.as_str()).collect()
}

impl Draws {
    /// A Poisson number, as the sum of `mean * 10` rare events.
    fn count(&mut self, mean: f64) -> i64 {
        (0..(mean * 10.0) as usize).filter(|_| self.next() < 0.1).count() as i64
    }
}

/// CPU time spread over 24 functions of own code and two of the standard library: 600 samples. `factor` multiplies that of `work0`.
fn even_cpu(draws: &mut Draws, shape: Shape, factor: f64) -> ProfilesData {
    let stacks: Vec<String> = (0..26)
        .map(|nth| if nth < 24 { format!("main;serve;work{nth}") } else { format!("lib.start;lib.select{nth}") })
        .collect();
    let rows: Vec<Row> = stacks
        .iter()
        .enumerate()
        .map(|(nth, stack)| {
            let mean = 600.0 / 26.0 * if nth == 0 { factor } else { 1.0 };
            (stack.as_str(), draws.count(mean) * INTERVAL_NS, &[][..])
        })
        .collect();
    window(shape, &rows)
}

/// A healthy service: even CPU time, short pauses and waits, a cache that fills in the first windows, two equal versions, requests that
/// wait for several things, idle threads that only wait.
fn healthy(seed: u64) -> Vec<ProfilesData> {
    let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
    let mut windows = Vec::new();
    for number in 0..12 {
        let version = if number < 6 { "1.0" } else { "1.1" };
        windows.push(even_cpu(&mut draws, Shape { number, version, ..CPU }, 1.0));
        let at = |type_name| Shape { number, ..of_type(type_name) };
        let gc = &[("main;serve;[GC];[generation 0];[automatic]", 150 * MS, &[][..])];
        windows.push(window(at("gc"), gc));
        windows.push(window(at("event_loop_lag"), &[("main;serve;work1", 120 * MS, &[])]));
        let waits = [("main;serve;work2;lib.acquire", 90 * MS, &[][..])];
        windows.push(window(at("delay"), &waits));
        let count = [("main;serve;work2;lib.acquire", 40, &[][..])];
        windows.push(window(Shape { unit: "count", ..at("contentions") }, &count));
        let request = &[("http.route", "/cart")][..];
        let waiting = [
            ("lib.worker;lib.get;[lock]", 10_000 * MS, &[][..]),
            ("main;serve;lib.select;[I/O]", 6_000 * MS, &[][..]),
            ("main;serve;work3;lib.recv;[I/O]", 900 * MS, request),
            ("main;serve;work4;lib.recv;[I/O]", 800 * MS, request),
            ("main;lib.Handle._run;work5;[scheduled out]", 700 * MS, request),
        ];
        windows.push(window(at("off_cpu"), &waiting));
        let mean = 40.0;
        let filled = mean * (number as f64 / 4.0).min(1.0);
        let heap = [
            ("main;serve;cache", draws.count(filled) * 512 * 1024, &[("age", "old")][..]),
            ("main;serve;session", draws.count(mean) * 512 * 1024, &[("age", "survived")][..]),
            ("main;serve;work6", draws.count(mean) * 512 * 1024, &[("age", "new")][..]),
        ];
        windows.push(window(Shape { number, ..HEAP }, &heap));
    }
    windows
}

#[test]
fn healthy_programs_have_no_problems_and_their_hottest_code_is_named() {
    let alarms: Vec<_> = (0..200).flat_map(|seed| alarms(&healthy(seed))).collect();
    // The test of regressions alone has one false alarm in about a hundred comparisons (decision 43).
    assert!(alarms.len() <= 2, "{} false alarms in 200: {alarms:#?}", alarms.len());
    let all = findings(&healthy(0));
    let [hottest] = all.as_slice() else { panic!("one observation, got {all:#?}") };
    // One of 24 equal functions.
    assert!(hottest.rule == Rule::HotCode && hottest.share.value < 0.06, "{hottest:#?}");
}

#[test]
fn hot_own_code_has_its_line_libraries_and_callers() {
    let rows: [Row; 5] = [
        ("main;serve;price:12", 300 * INTERVAL_NS, &[]),
        ("main;serve;price:14;lib.loads", 500 * INTERVAL_NS, &[]),
        ("main;job;price:14;lib.loads", 100 * INTERVAL_NS, &[]),
        ("main;serve;lib.select", 60 * INTERVAL_NS, &[]),
        ("main;other", 40 * INTERVAL_NS, &[]),
    ];
    let finding = found(&[window(CPU, &rows)], Rule::HotCode, "price");
    assert!((finding.share.value - 0.9).abs() < 1e-9 && finding.samples == 900.0, "{finding:#?}");
    assert!(finding.share.low > 0.87 && finding.share.high < 0.93, "{finding:#?}");
    assert_eq!((fact(&finding, "self"), fact(&finding, "line")), (&Fact::Part(0.3), &Fact::Line(14)));
    assert_eq!(names(fact(&finding, "callers")), ["serve", "job"]);
    assert_eq!(names(fact(&finding, "callees")), ["lib.loads"]);
    assert!((finding.cost - 0.9).abs() < 1e-9, "nine of ten seconds");
}

#[test]
fn libraries_are_not_hot_and_few_samples_are_a_limitation() {
    let library: [Row; 1] = [("lib.start;lib.select", 900 * INTERVAL_NS, &[])];
    assert_eq!(findings(&[window(CPU, &library)]), []);
    let idle: Vec<ProfilesData> =
        (0..100).map(|number| window(Shape { number, ..CPU }, &[("main;price", 3 * INTERVAL_NS, &[])])).collect();
    let named = findings(&idle);
    assert_eq!((named.len(), named[0].rule), (1, Rule::HotCode), "0.3 % of a processor: {named:#?}");
    let few = window(CPU, &[("main;price", 60 * INTERVAL_NS, &[]), ("main;cart", 40 * INTERVAL_NS, &[])]);
    assert_eq!(rules(std::slice::from_ref(&few))[0], Rule::FewSamples, "before all others");
    let finding = findings(&[few]).remove(0);
    assert!(matches!(fact(&finding, "uncertainty"), Fact::Part(margin) if (0.08..0.11).contains(margin)));
}

#[test]
fn garbage_collection_names_the_allocators() {
    let cpu = even_cpu(&mut Draws(3), CPU, 1.0);
    let gc: [Row; 1] = [("main;serve;render;[GC];[generation 2];[automatic]", 2_500 * MS, &[])];
    let allocated: [Row; 2] = [("main;serve;render;lib.join", 900 * MIB, &[]), ("main;serve;cart", 100 * MIB, &[])];
    let allocated = window(Shape { type_name: "alloc_space", ..HEAP }, &allocated);
    let finding = found(&[cpu.clone(), window(of_type("gc"), &gc), allocated], Rule::GarbageCollection, "render");
    // 2.5 s of pauses in 6 s of CPU time.
    assert!((0.38..0.46).contains(&finding.share.value), "{finding:#?}");
    assert_eq!(fact(&finding, "of"), &Fact::Text("CPU time".to_owned()));
    assert_eq!(names(fact(&finding, "allocators")), ["render", "cart"]);
    assert_eq!(names(fact(&finding, "causes")), ["[automatic]"]);
    let preempted: [Row; 2] = [
        ("main;serve;render;[GC];[generation 2];[automatic]", 300 * MS, &[]),
        ("main;serve;render;[GC];[generation 2];[automatic];[scheduled out]", 2_200 * MS, &[]),
    ];
    let on_a_busy_machine = [even_cpu(&mut Draws(3), CPU, 1.0), window(of_type("gc"), &preempted)];
    assert_eq!(rules(&on_a_busy_machine), [], "5 % of the CPU time");
    let collector: [Row; 2] = [("GC;[libjvm.so]", 300 * INTERVAL_NS, &[]), ("main;a", 90 * INTERVAL_NS, &[])];
    let threads = alarms(&[cpu, window(Shape { number: 1, ..CPU }, &collector)]);
    assert_eq!((threads.len(), threads[0].rule), (1, Rule::GarbageCollection), "{threads:#?}");
    assert_eq!(threads[0].samples, 300.0);
}

#[test]
fn a_lock_convoy_has_its_waits_threads_and_lock() {
    let threads = [[("thread.id", "1")], [("thread.id", "2")], [("thread.id", "3")]];
    let stack = "main;serve;reserve;lib.lock;[ReentrantLock$Sync]";
    let delay: Vec<Row> = threads.iter().map(|thread| (stack, 9_000 * MS, &thread[..])).collect();
    let waits: Vec<Row> = threads.iter().map(|thread| (stack, 200, &thread[..])).collect();
    let waits = window(Shape { unit: "count", ..of_type("contentions") }, &waits);
    let finding = found(&[window(of_type("delay"), &delay), waits.clone()], Rule::LockConvoy, "reserve");
    assert_eq!((fact(&finding, "waits"), fact(&finding, "threads")), (&Fact::Number(600.0), &Fact::Number(3.0)));
    assert_eq!(fact(&finding, "waiting_threads"), &Fact::Number(2.7));
    assert_eq!(fact(&finding, "mean_wait"), &Fact::Quantity(45 * MS, "nanoseconds"));
    let short = window(of_type("delay"), &[(stack, 500 * MS, &[])]);
    assert_eq!(rules(&[short, waits]), [], "0.05 threads wait on average");
    let few = |delay| {
        let count = Shape { unit: "count", ..of_type("contentions") };
        [window(of_type("delay"), &[(stack, delay, &[])]), window(count, &[(stack, 16, &[])])]
    };
    let finding = found(&few(18_200 * MS), Rule::LockConvoy, "reserve");
    assert_eq!((fact(&finding, "waits"), finding.samples), (&Fact::Number(16.0), 16.0), "delay is measured");
    assert_eq!(rules(&few(4_000 * MS)), [], "few waits, short in total");
}

#[test]
fn blocks_of_the_event_loop_are_found_in_node_and_asyncio() {
    let lag: [Row; 3] = [
        ("main;handle;parse:9", 3_000 * MS, &[]),
        ("main;handle;render", 400 * MS, &[]),
        ("(not on the CPU)", 5_000 * MS, &[]),
    ];
    let longest = |number, comment| window(Shape { number, comment, ..of_type("event_loop_lag") }, &lag);
    let windows =
        [longest(0, "longest_block_ns=60000000"), longest(1, "duty_cycle=15s/5m; longest_block_ns=700000000")];
    let finding = found(&windows, Rule::EventLoopBlock, "parse");
    assert!((finding.share.value - 0.34).abs() < 1e-9, "{finding:#?}");
    assert_eq!(fact(&finding, "longest_block"), &Fact::Quantity(700 * MS, "nanoseconds"));
    assert_eq!(rules(&[window(of_type("event_loop_lag"), &lag[2..])]), [], "a machine without a free processor");
    let start: [Row; 2] = [
        ("node:internal/main/run_main_module:28;node:internal/modules/cjs/loader:9;main;parse", 4_000 * MS, &[]),
        ("node:internal/process/task_queues:9;node:internal/modules/esm/module_job:9;main;parse", 4_000 * MS, &[]),
    ];
    assert_eq!(rules(&[window(of_type("event_loop_lag"), &start)]), [], "the program loads its modules");
    let waits: [Row; 3] = [
        ("main;lib.run;lib.Handle._run;handle;lib.sleep;[sleep]", 2_000 * MS, &[]),
        ("main;lib.run;lib.Handle._run;handle;[scheduled out]", 900 * MS, &[]),
        ("main;lib.run;lib.select;[I/O]", 7_000 * MS, &[]),
    ];
    let finding = found(&[window(of_type("off_cpu"), &waits)], Rule::EventLoopBlock, "handle");
    assert!((finding.share.value - 0.2).abs() < 1e-9, "{finding:#?}");
}

#[test]
fn requests_that_wait_are_found_by_off_cpu_and_by_wall() {
    let request = &[("endpoint", "/pay")][..];
    let windows = |type_name, interval| -> Vec<ProfilesData> {
        (0..30)
            .flat_map(|number| {
                let rows: [Row; 3] = [
                    ("main;serve;pay;lib.recv;[I/O]", 4_000 * MS, request),
                    ("main;serve;cart;lib.recv;[I/O]", 500 * MS, request),
                    ("lib.worker;lib.get;[lock]", 10_000 * MS, &[]),
                ];
                let cpu: [Row; 2] =
                    [("main;serve;pay", 10 * INTERVAL_NS, request), ("main;serve;a", 9 * INTERVAL_NS, &[])];
                [window(Shape { number, interval, ..of_type(type_name) }, &rows), window(Shape { number, ..CPU }, &cpu)]
            })
            .collect()
    };
    for (type_name, interval) in [("off_cpu", 1), ("wall", 50 * MS)] {
        let all = findings(&windows(type_name, interval));
        let waits: Vec<_> = all.iter().filter(|finding| finding.rule == Rule::WaitingRequests).collect();
        assert_eq!(waits.len(), 1, "{type_name}: {all:#?}");
        assert_eq!((waits[0].function.as_ref().unwrap().function.as_str(), waits[0].type_name), ("pay", type_name));
        assert!((0.8..0.9).contains(&waits[0].share.value), "{:#?}", waits[0]);
        assert_eq!(names(fact(waits[0], "reasons")), ["[I/O]"]);
    }
}

/// `remember` grows by 10 MiB a window; `session` expires, `cache` fills in the first three windows, and `load` keeps what it reads once.
fn heap(windows: u64, growing_age: &'static str) -> Vec<ProfilesData> {
    (0..windows)
        .map(|number| {
            let leaked = (number as i64 + 1) * 10 * MIB;
            let filled = (number as i64 + 1).min(3) * 20 * MIB;
            let age = [("age", growing_age)];
            let rows: [Row; 4] = [
                ("main;serve;remember;lib.dict", leaked, &age),
                ("main;load", if number * 4 < windows * 3 { 0 } else { 60 * MIB }, &age),
                ("main;serve;cache", filled, &[("age", "old")]),
                ("main;serve;session", 30 * MIB, &[("age", "new")]),
            ];
            window(Shape { number, ..HEAP }, &rows)
        })
        .collect()
}

#[test]
fn growing_and_aging_objects_are_found_and_caches_are_not() {
    let mut windows = heap(9, "old");
    // The order of the files does not matter.
    windows.reverse();
    let finding = found(&windows, Rule::MemoryGrowth, "remember");
    assert_eq!(
        (fact(&finding, "first"), fact(&finding, "last")),
        (&Fact::Quantity(10 * MIB, "bytes"), &Fact::Quantity(90 * MIB, "bytes"))
    );
    assert_eq!(fact(&finding, "older_than_a_window"), &Fact::Part(1.0));
    let growing: Vec<_> = findings(&windows).into_iter().filter(|finding| finding.rule == Rule::MemoryGrowth).collect();
    assert_eq!(growing.len(), 1, "{growing:#?}");
    found(&heap(300, "old"), Rule::MemoryGrowth, "remember");
    assert_eq!(rules(&heap(9, "new")), [], "a growing load");
    assert_eq!(rules(&heap(3, "old")), [], "too few windows");
}

#[test]
fn every_function_whose_objects_grow_is_reported() {
    let names: Vec<String> = (0..5).map(|nth| format!("main;leak{nth}")).collect();
    let windows = (0..8).map(|number| {
        let rows: Vec<Row> =
            names.iter().map(|name| (&**name, (number as i64 + 1) * 5 * MIB, &[("age", "old")][..])).collect();
        window(Shape { number, ..HEAP }, &rows)
    });
    let all = findings(&windows.collect::<Vec<_>>());
    assert_eq!(all.iter().filter(|finding| finding.rule == Rule::MemoryGrowth).count(), 5, "{all:#?}");
}

/// Windows of a service whose functions have on average 40 samples of objects in use. After a window, a part of them is removed and as many
/// are added. `leak` gets `leaked` samples in each window, and none is removed.
fn turnover(draws: &mut Draws, kept: f64, leaked: f64) -> Vec<ProfilesData> {
    let names: Vec<String> = (0..8).map(|nth| format!("main;work{nth}")).collect();
    let mut in_use: Vec<i64> = names.iter().map(|_| draws.count(40.0)).collect();
    let mut leak = 0;
    let windows = (0..10).map(|number| {
        let mut rows: Vec<Row> = Vec::new();
        for (name, count) in names.iter().zip(&mut in_use) {
            let survived = (0..*count).filter(|_| draws.next() < kept).count() as i64;
            let added = draws.count(40.0 * (1.0 - kept));
            *count = survived + added;
            rows.push((name, survived * (512 << 10), &[("age", "survived")]));
            rows.push((name, added * (512 << 10), &[("age", "new")]));
        }
        let added = draws.count(leaked);
        rows.push(("main;leak", leak * (512 << 10), &[("age", "old")]));
        rows.push(("main;leak", added * (512 << 10), &[("age", "new")]));
        leak += added;
        rows.retain(|(_, weight, _)| *weight > 0);
        window(Shape { number, ..HEAP }, &rows)
    });
    windows.collect()
}

#[test]
fn leaks_of_few_samples_are_found_beside_objects_that_are_replaced() {
    let mut draws = Draws(5);
    let mut found_leaks = 0;
    for kept in [0.05, 0.5, 0.9, 0.98].into_iter().cycle().take(100) {
        assert_eq!(alarms(&turnover(&mut draws, kept, 0.0)), [], "of eight functions with {kept} kept");
        let sparse: Vec<_> = turnover(&mut draws, kept, 0.0).into_iter().step_by(2).collect();
        assert_eq!(alarms(&sparse), [], "every second window is missing");
        let all = alarms(&turnover(&mut draws, kept, 6.0));
        let is_leak = |finding: &Finding| finding.function.as_ref().is_some_and(|at| at.function == "leak");
        assert!(all.iter().all(is_leak), "{all:#?}");
        found_leaks += all.len();
    }
    // A tenth of the objects in use, or less, is not reported as a leak.
    assert!(found_leaks >= 90, "{found_leaks} of 100 leaks");
}

#[test]
fn a_regression_since_the_previous_version_has_both_shares() {
    let mut draws = Draws(11);
    let mut versions = |newest_factor: f64| -> Vec<ProfilesData> {
        (0..18)
            .map(|number| {
                let (version, factor) = match number {
                    0..6 => ("1.9", 3.0),
                    6..12 => ("1.10", 1.0),
                    _ => ("2.0", newest_factor),
                };
                even_cpu(&mut draws, Shape { number, version, ..CPU }, factor)
            })
            .collect()
    };
    let finding = found(&versions(2.5), Rule::Regression, "work0");
    let versions_of = ["baseline_version", "version"].map(|name| fact(&finding, name).clone());
    assert_eq!(versions_of, ["1.10", "2.0"].map(|version| Fact::Text(version.to_owned())));
    assert!(finding.share.low > 0.5 && finding.share.high < 3.0, "{finding:#?}");
    assert_eq!(rules(&versions(1.0)), [], "slow two versions ago");
}

#[test]
fn an_unreliable_profile_is_reported_before_everything_else() {
    let comment = "spanprof governor: sample_rate=10 (configured 100); limited by cpu_budget";
    let rows: [Row; 4] = [
        ("[unseen_thread]", 100 * INTERVAL_NS, &[]),
        ("main;price;[truncated]", 60 * INTERVAL_NS, &[]),
        ("main;price", 700 * INTERVAL_NS, &[]),
        ("main;[GC]", INTERVAL_NS, &[]),
    ];
    let all = findings(&[window(Shape { comment, ..CPU }, &rows)]);
    let order: Vec<Rule> = all.iter().map(|finding| finding.rule).collect();
    assert_eq!(order, [Rule::MissingStacks, Rule::LimitedSampling, Rule::HotCode]);
    assert_eq!(names(fact(&all[0], "reasons")), ["[unseen_thread]", "[truncated]"]);
    assert_eq!(all[0].samples, 160.0);
    let limit = "sample_rate=10 (configured 100), limited by cpu_budget";
    assert_eq!(fact(&all[1], "limits"), &Fact::Text(limit.to_owned()));
    assert!(rules(&[window(Shape { comment: "made by another tool", ..CPU }, &rows[2..])]).is_empty());
}

#[test]
fn each_limit_of_the_profiler_is_listed_once_without_other_comments() {
    let governor = "spanprof governor: wall_rate=38 (configured 100), shed=heap; limited by cpu_budget";
    let comments = [
        governor.to_owned(),
        format!("{governor}; longest_block_ns=500825056"),
        format!("{governor}; duty_cycle=15s/5m; longest_block_ns=400\nanother comment"),
        "spanprof governor: sample_rate=200 (configured 100); raised by sample_rate_max".to_owned(),
    ];
    let windows: Vec<_> = (0..)
        .zip(&comments)
        .map(|(number, comment)| {
            window(Shape { number, comment, ..of_type("event_loop_lag") }, &[("main;handle", MS, &[])])
        })
        .collect();
    let all = alarms(&windows);
    assert_eq!(all.len(), 1, "{all:#?}");
    let limits = "duty_cycle=15s/5m; wall_rate=38 (configured 100), shed=heap, limited by cpu_budget";
    assert_eq!(fact(&all[0], "limits"), &Fact::Text(limits.to_owned()));
    assert_eq!(rules(&windows[3..]), [], "a raised rate is no limit");
}

#[test]
fn findings_are_the_same_in_every_order_of_windows() {
    let mut windows = heap(9, "old");
    windows.push(window(CPU, &[("main;a", 400 * INTERVAL_NS, &[]), ("main;b", 400 * INTERVAL_NS, &[])]));
    windows.push(window(of_type("event_loop_lag"), &[("main;c", 3_000 * MS, &[])]));
    let forward = findings(&windows);
    windows.reverse();
    assert_eq!(forward, findings(&windows));
    let order: Vec<_> = forward.iter().map(|finding| finding.function.as_ref().unwrap().function.as_str()).collect();
    assert_eq!(order, ["remember", "c", "a", "b"], "problems before observations, by cost, then by name");
}
