//! Limits of the governor in a run: periods, totals, sources and comments, exactly, with submitted samples.

use std::sync::Arc;

use crate::governor::{Governor, LoadInterval, OverheadCost, INTERVAL_NS};
use crate::lifecycle::ProfilerHandle;
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_aggregate::StatValue;
use spanprof_config::{Burst, Config, ConfigPatch, ConfigValue};
use spanprof_os::testing::in_child;
use spanprof_profile::ProfilesData;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind};

/// The governor after an interval in which samples cost ten times the budget.
fn lowered(config: &Config) -> Governor {
    let mut governor = Governor::default();
    let cost = OverheadCost { handler_ns: INTERVAL_NS / 10, ..OverheadCost::default() };
    let load = LoadInterval {
        elapsed_ns: INTERVAL_NS,
        cost,
        quota: None,
        cpu_use: 0.5,
        memory_use: 0.0,
        threads: 1,
        has_start: false,
    };
    assert!(governor.step(config, &load));
    governor
}

fn apply(profiler: &ProfilerHandle, governor: Governor) {
    let session = profiler.session().unwrap();
    crate::session::current::with_lifecycle_lock(|| {
        session.config.governor.store(Arc::new(governor));
        session.apply_limits();
    });
}

/// The period, the CPU time and the comments of each file, by period.
fn files(directory: &std::path::Path) -> Vec<(i64, i64, bool)> {
    let read = |path: std::path::PathBuf| -> ProfilesData {
        let limits = spanprof_read::decode::DecodeLimits::default();
        spanprof_read::decode::pprof::decode(&std::fs::read(path).unwrap(), &limits).unwrap()
    };
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == "gz")).map(read).collect();
    files.sort_by_key(|data| data.profiles().next().unwrap().1.period);
    let summary = |data: &ProfilesData| {
        let (_, profile) = data.profiles().next().unwrap();
        let total_ns = profile.samples.iter().map(|sample| profile.weight(sample)).sum();
        let mut attributes = data.dictionary.attributes_of(profile.attributes);
        (profile.period, total_ns, attributes.any(|attribute| format!("{:?}", attribute.value).contains("cpu_budget")))
    };
    files.iter().map(summary).collect()
}

#[test]
fn a_limited_rate_has_its_period_and_comment_and_no_total_depends_on_it() {
    in_child(|| {
        let directory = std::env::temp_dir().join(format!("spanprof-governor-{}", std::process::id()));
        let runtime = FakeRuntime::new();
        let frames = [RawFrame { code: runtime.code_of("working"), at: 0 }];
        let config = Config {
            cpu: false,
            heap: false,
            gc: false,
            file_directory: Some(directory.to_str().unwrap().to_owned()),
            ..Config::default()
        };
        let profiler = ProfilerHandle::start_with_runtime(config.clone(), runtime.clone()).unwrap();
        let submit = |ns| {
            let sample = RawSample {
                kind: SampleKind::Cpu,
                flags: SampleFlags(0),
                thread_id: spanprof_os::thread_id(),
                time_ns: spanprof_os::monotonic_ns(),
                values: [ns, 1],
                key: 0,
                context: Context::None,
                frames: &frames,
            };
            profiler.submit(&sample).unwrap();
        };
        let text = |name: &str| match profiler.stats().get(name) {
            Some(StatValue::Text(text)) => text.clone(),
            other => panic!("{name}: {other:?}"),
        };
        submit(30_000_000);
        apply(&profiler, lowered(&config));
        submit(200_000_000);
        assert_eq!(text("config.sample_rate"), "10");
        assert_eq!(text("config.sample_rate.source"), "governor");
        assert_eq!(text("governor.limited_by"), "cpu_budget");
        // The last writer wins below the limit; the limit itself stays.
        let patch = ConfigPatch(vec![("sample_rate".to_owned(), ConfigValue::Int(200))]);
        profiler.update(&patch).unwrap();
        assert_eq!(profiler.stats().counter("governor.sample_rate"), 20);
        submit(150_000_000);
        apply(&profiler, Governor::default());
        assert_eq!(text("config.sample_rate.source"), "update");
        submit(15_000_000);
        assert!(profiler.stop());
        let expected = [
            (5_000_000, 15_000_000, false),
            (10_000_000, 30_000_000, false),
            (50_000_000, 150_000_000, true),
            (100_000_000, 200_000_000, true),
        ];
        assert_eq!(files(&directory), expected);
        std::fs::remove_dir_all(directory).unwrap();
    });
}

#[test]
fn a_burst_has_its_rate_under_a_limit_which_applies_again_at_once_after_it() {
    in_child(|| {
        let config = Config { destinations: Some(Vec::new()), cpu: false, heap: false, gc: false, ..Config::default() };
        let profiler = ProfilerHandle::start_with_runtime(config.clone(), FakeRuntime::new()).unwrap();
        let rate = || profiler.stats().counter("governor.sample_rate");
        let values = vec![("sample_rate".to_owned(), ConfigValue::Int(1000)), ("cpu_budget".to_owned(), 0.into())];
        let burst = Burst { until_ns: u64::MAX, values };
        for (before, limited_hz) in [(lowered(&config), 10), (Governor::default(), 100)] {
            apply(&profiler, before);
            assert_eq!(rate(), limited_hz);
            profiler.session().unwrap().change(|running| Ok(running.with_burst(burst.clone()))).unwrap();
            assert_eq!(rate(), 1000);
            // The governor's last decision in the burst was about its cost.
            apply(&profiler, lowered(&config));
            profiler.session().unwrap().change(|running| Ok(running.without_burst())).unwrap();
            assert_eq!(rate(), limited_hz);
        }
        assert!(profiler.stop());
    });
}

#[test]
fn load_shedding_stops_the_reported_events_until_it_ends() {
    in_child(|| {
        let runtime = FakeRuntime::new();
        let config = Config {
            cpu: false,
            heap: false,
            lock: true,
            off_cpu: false,
            destinations: Some(Vec::new()),
            load_shedding_threshold: Some(0.5),
            ..Config::default()
        };
        let profiler = ProfilerHandle::start_with_runtime(config.clone(), runtime.clone()).unwrap();
        let mut governor = Governor::default();
        let load = LoadInterval {
            elapsed_ns: INTERVAL_NS,
            cost: OverheadCost::default(),
            quota: None,
            cpu_use: 0.0,
            memory_use: 0.6,
            threads: 1,
            has_start: false,
        };
        governor.step(&config, &load);
        apply(&profiler, governor);
        assert!(!runtime.reported_events().lock && runtime.reported_events().gc);
        assert_eq!(profiler.stats().get("governor.shed"), Some(&StatValue::Text("lock".to_owned())));
        apply(&profiler, Governor::default());
        assert!(runtime.reported_events().lock);
        assert!(profiler.stop());
    });
}
