//! Changes of a running profiler: `enabled` at run time, with real clocks and destinations.

use std::time::{Duration, Instant};

use super::profiler::{burn, one_at_a_time, start_native, with_receiver, without_destination, Receiver200, TIMEOUT};
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_aggregate::StatValue;
use spanprof_config::{Config, ConfigPatch, ConfigValue, DutyCycle};
use spanprof_profile::{ProfilesData, Value};
use spanprof_profiler::ProfilerHandle;

fn set(profiler: &ProfilerHandle, key: &str, value: ConfigValue) {
    profiler.update(&ConfigPatch(vec![(key.to_owned(), value)])).unwrap();
}

fn enable(profiler: &ProfilerHandle, is_enabled: bool) {
    set(profiler, "enabled", ConfigValue::Bool(is_enabled));
}

/// CPU time of the samples in nanoseconds: of all, and of those with the label `phase=off`.
fn cpu_ns(data: &ProfilesData) -> [i64; 2] {
    let mut sums = [0; 2];
    for (_, profile) in data.profiles().filter(|(_, profile)| profile.sample_type.kind == "samples") {
        for sample in &profile.samples {
            let mut labels = data.dictionary.attributes_of(sample.attributes);
            let is_off = labels.any(|label| label.key == "phase" && label.value == Value::String("off"));
            sums[0] += profile.weight(sample);
            sums[1] += if is_off { profile.weight(sample) } else { 0 };
        }
    }
    sums
}

#[test]
fn totals_are_those_of_the_enabled_time_over_many_changes_of_enabled_and_rate() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(Config { heap: false, ..with_receiver(&receiver) }).unwrap();
    let host_cpu_ns = || spanprof_os::process_cpu_ns() - spanprof_os::own_cpu_ns();
    let mut enabled_ns = 0;
    let mut begun = host_cpu_ns();
    for round in 0..20 {
        spanprof::tag_wrapper([("phase", "on")], || burn(Duration::from_millis(40)));
        set(&profiler, "sample_rate", ConfigValue::Int([20, 100, 1000][round % 3]));
        spanprof::tag_wrapper([("phase", "on")], || burn(Duration::from_millis(40)));
        enable(&profiler, false);
        enabled_ns += host_cpu_ns() - begun;
        assert!(!profiler.is_running());
        spanprof::tag_wrapper([("phase", "off")], || burn(Duration::from_millis(20)));
        begun = host_cpu_ns();
        enable(&profiler, true);
        assert!(profiler.is_running());
    }
    assert!(profiler.stop(), "everything was delivered");
    let mut total = [0; 2];
    while let Some(data) = receiver.next(Duration::from_millis(200)) {
        let sums = cpu_ns(&data);
        total = [total[0] + sums[0], total[1] + sums[1]];
    }
    assert_eq!(total[1], 0, "CPU time of the disabled time");
    let ratio = total[0] as f64 / enabled_ns as f64;
    // The last period before `stop` is missing; the end of each enabled time is not.
    assert!((0.95..1.03).contains(&ratio), "{} of {enabled_ns} ns: {ratio}", total[0]);
}

#[test]
fn disabling_delivers_the_window_and_takes_no_further_sample() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(with_receiver(&receiver)).unwrap();
    burn(Duration::from_millis(300));
    enable(&profiler, false);
    let delivered = receiver.next(TIMEOUT).expect("the window of the enabled time");
    assert!(cpu_ns(&delivered)[0] > 0);
    let samples = || profiler.stats().counter("samples.cpu");
    assert_eq!(profiler.stats().get("state"), Some(&StatValue::Text("disabled by enabled=false".to_owned())));
    assert_eq!(profiler.stats().get("config.enabled.source"), Some(&StatValue::Text("update".to_owned())));
    let before = samples();
    burn(Duration::from_millis(100));
    profiler.flush(TIMEOUT);
    assert_eq!(samples(), before);
    enable(&profiler, true);
    enable(&profiler, true);
    assert_eq!(profiler.stats().counter("control.times_enabled"), 1, "a repeated change does nothing");
    for _ in 0..50 {
        burn(Duration::from_millis(20));
        profiler.flush(TIMEOUT);
        if samples() > before {
            break;
        }
    }
    assert!(samples() > before);
    assert!(profiler.stop());
}

#[test]
fn a_profiler_started_with_enabled_false_is_enabled_while_it_runs() {
    let _serial = one_at_a_time();
    let config = || Config { enabled: false, ..without_destination() };
    let profiler = start_native(config()).unwrap();
    assert!(!profiler.is_running());
    assert_eq!(profiler.stats().get("clock.name"), Some(&StatValue::Text("none".to_owned())));
    enable(&profiler, true);
    assert!(profiler.is_running());
    assert!(start_native(config()).unwrap().is_running(), "a running profiler stays as it is");
    profiler.stop();
}

#[test]
fn a_start_replaces_a_profiler_that_was_never_enabled() {
    let _serial = one_at_a_time();
    let start = |enabled| {
        ProfilerHandle::start_with_runtime(Config { enabled, ..without_destination() }, FakeRuntime::new()).unwrap()
    };
    assert!(!start(false).is_running());
    assert!(!start(false).is_running());
    let profiler = start(true);
    assert!(profiler.is_running());
    enable(&profiler, false);
    assert!(!start(true).is_running(), "disabled while running: only a change enables it");
    profiler.stop();
}

#[test]
fn a_duty_cycle_ends_windows_and_its_profiles_have_a_comment() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let second = Duration::from_secs(1);
    let cycle = Some(DutyCycle { on: second, every: 2 * second });
    let profiler = start_native(Config { cpu_duty_cycle: cycle, heap: false, ..with_receiver(&receiver) }).unwrap();
    // The upload interval is an hour: each window ends with its part of a cycle.
    let begun = Instant::now();
    let mut windows = Vec::new();
    while windows.len() < 2 && begun.elapsed() < TIMEOUT {
        burn(Duration::from_millis(50));
        windows.extend(receiver.next(Duration::ZERO));
    }
    assert!(profiler.stop());
    assert_eq!(windows.len(), 2);
    for data in &windows {
        let (_, profile) = data.profiles().next().unwrap();
        let comments: Vec<_> =
            data.dictionary.attributes_of(profile.attributes).map(|it| it.value.to_string()).collect();
        assert_eq!(comments, ["duty_cycle=1s/2s"]);
        // Delays of a busy machine lengthen it.
        assert!(profile.duration_nano < TIMEOUT.as_nanos() as u64, "{} ns", profile.duration_nano);
    }
}
