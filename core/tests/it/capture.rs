//! The profile of a capture: the samples of its contexts only, over windows of the continuous profile.

use std::sync::Arc;
use std::time::Duration;

use spanprof_aggregate::testing::FakeRuntime;
use spanprof_config::Config;
use spanprof_os::thread_context;
use spanprof_profile::{Profile, ProfilesData};
use spanprof_profiler::ProfilerHandle;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind};

use crate::profiler::{one_at_a_time, with_receiver, without_destination, Receiver200, TIMEOUT};

/// Submits a sample of 1 ms off CPU in `function`, in the context of the calling thread.
fn submit(profiler: &ProfilerHandle, runtime: &FakeRuntime, function: &str) {
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
    let profiler = ProfilerHandle::start_with_runtime(config, runtime.clone()).unwrap();
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
    drop(spanprof_profiler::RunningCapture::begin());
    assert!(profiler.flush(TIMEOUT));
    assert_eq!(profiler.stats().counter("samples.submitted"), 9);
    assert_eq!(profiler.stats().counter("capture.dropped"), 0);
    profiler.stop();
}

/// A capture with two waits, in a scope with a link, a label and a secret.
fn captured_request(profiler: &ProfilerHandle, runtime: &FakeRuntime) -> spanprof_profiler::CapturedProfile {
    let labels = [
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("span_id", "00f067aa0ba902b7"),
        ("endpoint", "/cart"),
        ("password", "hunter2"),
    ];
    let work = || spanprof::tag_wrapper(labels, || (0..2).for_each(|_| submit(profiler, runtime, "captured")));
    spanprof::capture(work).1
}

#[test]
fn a_sent_capture_has_its_link_labels_and_resource_under_types_of_its_own() {
    let _serial = one_at_a_time();
    let (receiver, runtime) = (Receiver200::start(), FakeRuntime::new());
    let config = Config { cpu: false, service_name: "shop".to_owned(), ..with_receiver(&receiver) };
    let profiler = ProfilerHandle::start_with_runtime(config, runtime.clone()).unwrap();
    let captured = captured_request(&profiler, &runtime);
    assert!(captured.send(TIMEOUT));
    let data = receiver.next(TIMEOUT).unwrap();
    let totals = |data: &ProfilesData| -> Vec<_> {
        let weight = |profile: &Profile| profile.samples.iter().map(|sample| profile.weight(sample)).sum::<i64>();
        data.profiles().map(|(_, profile)| (profile.type_name().to_owned(), weight(profile))).collect()
    };
    let expected = |prefix: &str| [(format!("{prefix}contentions"), 2), (format!("{prefix}delay"), 2_000_000)];
    assert_eq!(totals(&data), expected("capture_"));
    let (resource, profile) = data.profiles().next().unwrap();
    assert_eq!(resource.service_name(), "shop");
    assert!(resource.resource.iter().any(|attribute| attribute.key == "service.instance.id"));
    assert!(profile.profile_id != [0; 16] && profile.time_unix_nano != 0 && profile.duration_nano != 0);
    let sample = &profile.samples[0];
    assert_eq!(data.dictionary.get_link(sample.link).span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    let labels: Vec<_> = data
        .dictionary
        .attributes_of(sample.attributes)
        .map(|label| format!("{}={}", label.key, label.value))
        .collect();
    assert!(labels.contains(&"endpoint=/cart".to_owned()), "{labels:?}");
    assert!(labels.iter().all(|label| !label.contains("hunter2")), "{labels:?}");
    // The window has the samples once.
    assert!(profiler.flush(TIMEOUT));
    assert_eq!(totals(&receiver.next(TIMEOUT).unwrap()), expected(""));
    let stats = profiler.stats();
    assert_eq!((stats.counter("export.0.sent_samples"), stats.counter("capture.unsent")), (4, 0));
    profiler.stop();
    assert!(!captured.send(TIMEOUT), "no profiler runs");
}

#[test]
fn a_capture_that_is_not_delivered_in_time_stays_queued_and_is_counted() {
    let _serial = one_at_a_time();
    let runtime = FakeRuntime::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config =
        Config { cpu: false, destinations: None, endpoint: Some(format!("http://{closed}")), ..without_destination() };
    let profiler = ProfilerHandle::start_with_runtime(config, runtime.clone()).unwrap();
    let captured = captured_request(&profiler, &runtime);
    assert!(!captured.send(Duration::ZERO));
    assert_eq!(profiler.stats().counter("export.0.enqueued"), 1);
    profiler.stop();
    // One sample of each type, of the capture and of the last window.
    assert_eq!(profiler.stats().counter("export.0.dropped_samples"), 4);
}

#[test]
fn a_capture_without_a_destination_is_not_sent_and_its_samples_are_counted() {
    let _serial = one_at_a_time();
    let runtime = FakeRuntime::new();
    let profiler =
        ProfilerHandle::start_with_runtime(Config { cpu: false, ..without_destination() }, runtime.clone()).unwrap();
    let captured = captured_request(&profiler, &runtime);
    assert!(!captured.send(TIMEOUT));
    assert!(spanprof_profiler::CapturedProfile::default().send(TIMEOUT), "nothing to send");
    assert_eq!(profiler.stats().counter("capture.unsent"), 2, "one sample of each type");
    profiler.stop();
}
