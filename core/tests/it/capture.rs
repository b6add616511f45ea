//! The profile of a capture: the samples of its contexts only, over windows of the continuous profile.

use std::sync::Arc;

use spanprof::fake::FakeRuntime;
use spanprof::sys::thread_context;
use spanprof::{Config, Profiler};
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind};

use crate::profiler::{one_at_a_time, without_destination, TIMEOUT};

/// Submits a sample of 1 ms off CPU in `function`, in the context of the calling thread.
fn submit(profiler: &Profiler, runtime: &FakeRuntime, function: &str) {
    let id = thread_context::current();
    let sample = RawSample {
        kind: SampleKind::Lock,
        flags: SampleFlags::default(),
        thread_id: 1,
        time_ns: 1,
        values: [1_000_000, 1],
        key: 0,
        context: if id == 0 { Context::None } else { Context::Id(id) },
        frames: &[RawFrame { code: runtime.code_of(function), at: 0 }],
    };
    profiler.submit(&sample).unwrap();
}

/// Wait in nanoseconds by function.
fn waits(pprof: &[u8]) -> Vec<(String, i64)> {
    let data: ProfilesData = decode::pprof::decode(pprof, &DecodeLimits::default()).unwrap();
    let (_, profile) = data.profiles().find(|(_, profile)| profile.type_name() == "delay").unwrap();
    let name = |sample: &spanprof_profile::Sample| {
        let location = data.dictionary.get_location(data.dictionary.get_stack(sample.stack)[0]);
        let name = data.dictionary.get_function(location.lines[0].function).name;
        (data.dictionary.get_string(name).to_owned(), sample.total())
    };
    let mut waits: Vec<_> = profile.samples.iter().map(name).collect();
    waits.sort();
    waits
}

#[test]
fn a_capture_has_the_samples_of_its_contexts_only_over_several_windows() {
    let _serial = one_at_a_time();
    let runtime = FakeRuntime::new();
    let config = Config { cpu: false, ..without_destination() };
    let profiler = Profiler::start_with_runtime(config, runtime.clone()).unwrap();
    let other = |function: &'static str| {
        let (profiler, runtime) = (profiler.clone(), Arc::clone(&runtime));
        std::thread::spawn(move || submit(&profiler, &runtime, function)).join().unwrap();
    };
    submit(&profiler, &runtime, "before");
    let (result, captured) = spanprof::capture(|| {
        for window in ["first", "second"] {
            submit(&profiler, &runtime, window);
            spanprof::tag_wrapper([("inner", "1")], || submit(&profiler, &runtime, "both"));
            other("other");
            assert!(profiler.flush(TIMEOUT));
        }
        let (profiler, runtime) = (profiler.clone(), Arc::clone(&runtime));
        std::thread::spawn(spanprof::bind(move || submit(&profiler, &runtime, "bound"))).join().unwrap();
        5
    });
    submit(&profiler, &runtime, "after");
    let expected = [("both", 2_000_000), ("bound", 1_000_000), ("first", 1_000_000), ("second", 1_000_000)];
    let expected: Vec<_> = expected.map(|(name, ns)| (name.to_owned(), ns)).into();
    assert_eq!((result, waits(&captured.pprof())), (5, expected));
    assert_eq!(captured.types(), ["contentions", "delay"]);
    assert!(captured.flamegraph().contains("bound"));
    let path = std::env::temp_dir().join(format!("spanprof-capture-{}.folded", std::process::id()));
    captured.save(&path).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("second "));
    std::fs::remove_file(&path).unwrap();
    // Samples of the captured context after its end belong to the continuous profile only.
    let (_, second) = spanprof::capture(|| ());
    assert!(second.is_empty());
    drop(spanprof::OpenCapture::begin());
    assert!(profiler.flush(TIMEOUT));
    assert_eq!(profiler.stats().counter("samples.submitted"), 9);
    assert_eq!(profiler.stats().counter("capture.dropped"), 0);
    profiler.stop();
}
