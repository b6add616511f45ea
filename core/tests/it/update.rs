//! Changes of a running profiler by `update`.

use std::time::{Duration, Instant};

use spanprof_aggregate::testing::FakeRuntime;
use spanprof_config::{Config, ConfigPatch, ConfigValue, ErrorKind};
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{RawFrame, RawSample, SampleFlags, SampleKind};

use crate::profiler::{
    burn, burn_until, check_total, one_at_a_time, start_native, with_receiver, without_destination, Receiver200,
    TIMEOUT,
};

#[test]
fn update_changes_live_keys_and_returns_an_error_for_others() {
    let _serial = one_at_a_time();
    let profiler = ProfilerHandle::start_with_runtime(without_destination(), FakeRuntime::new()).unwrap();
    let patch = |key: &str, value: i64| ConfigPatch(vec![(key.to_owned(), ConfigValue::Int(value))]);
    profiler.update(&patch("sample_rate", 19)).unwrap();
    assert_eq!(profiler.config().sample_rate, 19);
    let error = profiler.update(&patch("max_stack_depth", 64)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidConfig);
    assert_eq!(error.message, "max_stack_depth cannot change while the profiler runs");
    assert!(profiler.update(&patch("sample_rate", 0)).is_err());
    assert_eq!(profiler.config().sample_rate, 19);
    profiler.stop();
}

#[test]
fn the_runtime_is_notified_of_the_events_to_report_at_start_update_and_stop() {
    let _serial = one_at_a_time();
    let runtime = FakeRuntime::new();
    let profiler =
        ProfilerHandle::start_with_runtime(Config { lock: true, ..without_destination() }, runtime.clone()).unwrap();
    let events = runtime.reported_events();
    assert_eq!((events.gc, events.lock, events.lock_threshold_ns), (true, true, 10_000));
    let patch = vec![
        ("gc".to_owned(), ConfigValue::Bool(false)),
        ("lock_threshold".to_owned(), ConfigValue::Text("1ms".to_owned())),
    ];
    profiler.update(&ConfigPatch(patch)).unwrap();
    let events = runtime.reported_events();
    assert_eq!((events.gc, events.lock, events.lock_threshold_ns), (false, true, 1_000_000));
    profiler.stop();
    assert!(!runtime.reported_events().lock);
}

#[test]
fn a_change_of_rate_closes_the_window_because_a_profile_has_one_period() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(with_receiver(&receiver)).unwrap();
    let host_cpu_ns = || spanprof_os::process_cpu_ns() - spanprof_os::own_cpu_ns();
    let host_before = host_cpu_ns();
    burn(Duration::from_millis(300));
    let closed = profiler.stats().counter("windows.closed");
    profiler.update(&ConfigPatch(vec![("sample_rate".to_owned(), ConfigValue::Int(50))])).unwrap();
    // The drain thread closes it, after it resolved its stacks.
    let deadline = Instant::now() + TIMEOUT;
    while profiler.stats().counter("windows.closed") == closed && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    burn(Duration::from_millis(300));
    assert!(profiler.stop());
    let host_ns = host_cpu_ns() - host_before;
    let requests = [receiver.next(TIMEOUT).unwrap(), receiver.next(TIMEOUT).unwrap()];
    let profiles: Vec<_> = requests.iter().flat_map(|data| data.profiles().map(|(_, profile)| profile)).collect();
    assert_eq!(profiles.iter().map(|profile| profile.period).collect::<Vec<_>>(), [10_000_000, 20_000_000]);
    let weight = |profile: &&spanprof_profile::Profile| profile.samples.iter().map(|s| profile.weight(s)).sum::<i64>();
    let total_ns: i64 = profiles.iter().map(weight).sum();
    check_total(&profiler, total_ns, host_ns);
    let gap_ns = profiles[0].end_unix_nano().abs_diff(profiles[1].time_unix_nano);
    assert!(gap_ns < 100_000_000, "the windows join: {gap_ns} ns between them");
}

#[test]
fn each_window_has_the_period_of_its_samples_even_if_stop_immediately_follows_a_change() {
    let _serial = one_at_a_time();
    let runtime = FakeRuntime::new();
    let frames = [RawFrame { code: runtime.code_of("working"), at: 0 }];
    for _ in 0..10 {
        let receiver = Receiver200::start();
        let config = Config { cpu: false, ..with_receiver(&receiver) };
        let profiler = ProfilerHandle::start_with_runtime(config, runtime.clone()).unwrap();
        // Samples as from a clock of the runtime.
        let sample = |period_ns| {
            let sample = RawSample {
                kind: SampleKind::Cpu,
                flags: SampleFlags(0),
                thread_id: spanprof_os::thread_id(),
                time_ns: spanprof_os::monotonic_ns(),
                values: [period_ns, 1],
                key: 0,
                context: spanprof_signal::Context::None,
                frames: &frames,
            };
            profiler.submit(&sample).unwrap();
        };
        let patch = |hz| ConfigPatch(vec![("sample_rate".to_owned(), ConfigValue::Int(hz))]);
        sample(10_000_000);
        profiler.update(&patch(50)).unwrap();
        sample(20_000_000);
        profiler.update(&patch(25)).unwrap();
        sample(40_000_000);
        assert!(profiler.stop());
        for period in [10_000_000, 20_000_000, 40_000_000] {
            let data = receiver.next(TIMEOUT).expect("a window for each rate");
            let (_, profile) = data.profiles().next().expect("a profile");
            let total_ns: i64 = profile.samples.iter().map(|sample| profile.weight(sample)).sum();
            assert_eq!((profile.period, total_ns), (period, period));
        }
    }
}

#[test]
fn cpu_can_be_switched_off_and_on_while_running() {
    let _serial = one_at_a_time();
    let profiler = start_native(without_destination()).unwrap();
    let patch = |on| ConfigPatch(vec![("cpu".to_owned(), ConfigValue::Bool(on))]);
    profiler.update(&patch(false)).unwrap();
    profiler.flush(TIMEOUT);
    let before = profiler.stats().counter("samples.cpu");
    burn(Duration::from_millis(100));
    profiler.flush(TIMEOUT);
    assert_eq!(profiler.stats().counter("samples.cpu"), before);
    profiler.update(&patch(true)).unwrap();
    burn_until("samples again", || {
        profiler.flush(TIMEOUT);
        profiler.stats().counter("samples.cpu") > before + 5
    });
    profiler.stop();
}
