//! The outcome line at the end of a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spanprof::NativeRuntime;
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_config::{Config, ConfigPatch, ConfigValue, Environment};
use spanprof_profiler::{LogLevel, ProfilerHandle};
use spanprof_signal::SampleKind;

use crate::profiler::{burn, one_at_a_time, without_destination, CapturedLog, TIMEOUT};

/// Runs a short program with this configuration; returns the lines of its log.
fn lines_of(config: Config, program: impl FnOnce()) -> Vec<(LogLevel, String)> {
    lines_of_runtime(FakeRuntime::new(), config, program)
}

fn lines_of_runtime(runtime: Arc<dyn Runtime>, config: Config, program: impl FnOnce()) -> Vec<(LogLevel, String)> {
    let log = CapturedLog::begin();
    let profiler = ProfilerHandle::start_with_runtime(config, runtime).unwrap();
    program();
    profiler.stop();
    profiler.stop();
    log.lines()
}

#[test]
fn a_program_shorter_than_a_window_warns_about_failed_delivery() {
    let _serial = one_at_a_time();
    // Nothing listens on port 1.
    let config =
        Config { endpoint: Some("http://127.0.0.1:1".to_owned()), stop_timeout: TIMEOUT, ..without_destination() };
    let config = Config { destinations: None, ..config };
    let begun = Instant::now();
    let lines = lines_of(config, || {
        burn(Duration::from_millis(300));
    });
    assert!(begun.elapsed() < TIMEOUT, "stop does not wait for an unreachable receiver");
    let [(level, line)] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(*level, LogLevel::Warning);
    assert!(line.starts_with(spanprof_profiler::OUTCOME_PREFIX), "{line}");
    assert!(line.contains("nothing delivered to http://127.0.0.1:1") && line.contains("cannot connect"), "{line}");
    assert!(line.contains("1 window lost (deadline 1)"), "{line}");
}

#[test]
fn samples_before_a_profiler_was_disabled_are_reported_with_their_clock() {
    let _serial = one_at_a_time();
    let lines = lines_of(without_destination(), || {
        burn(Duration::from_millis(100));
        let disabled = ConfigPatch(vec![("enabled".to_owned(), ConfigValue::Bool(false))]);
        ProfilerHandle::running().unwrap().update(&disabled).unwrap();
    });
    let clocks = lines.iter().filter(|(_, line)| line.contains(", clock ")).count();
    assert!(clocks >= 1 && clocks == lines.len(), "{lines:?}");
}

#[test]
fn all_profiles_are_those_of_the_runtime_without_a_warning() {
    let _serial = one_at_a_time();
    let config = Config::load(&[("profiles".to_owned(), "all".into())], &Environment::new()).unwrap();
    let config = Config { destinations: Some(Vec::new()), heap: false, ..config };
    let lines = lines_of(config, || {
        let config = ProfilerHandle::running().unwrap().config();
        let runtime = FakeRuntime::new();
        let supported =
            [SampleKind::Gc, SampleKind::Lock].map(|kind| runtime.events().is_some_and(|events| events.submits(kind)));
        assert_eq!([config.gc, config.lock], supported);
        assert_eq!(config.wall, runtime.wall().is_some_and(|wall| wall.capture_other().is_some()));
    });
    assert!(!lines.iter().any(|(level, _)| *level == LogLevel::Warning), "{lines:?}");
}

#[test]
fn a_program_without_destinations_reports_its_samples_as_information() {
    let _serial = one_at_a_time();
    let lines = lines_of(without_destination(), || {
        burn(Duration::from_millis(100));
    });
    let [(level, line)] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(*level, LogLevel::Info);
    assert!(line.contains(" samples, clock ") && line.ends_with("no destination"), "{line}");
}

#[test]
fn a_kind_that_the_runtime_lacks_is_a_warning_only_if_it_was_requested() {
    let _serial = one_at_a_time();
    let warnings = |config: Config| {
        let lines = lines_of(config, || {});
        lines.into_iter().filter(|(level, _)| *level == LogLevel::Warning).map(|(_, line)| line).collect::<Vec<_>>()
    };
    assert_eq!(warnings(without_destination()), Vec::<String>::new(), "gc is on by default");
    let in_code = Config::builder().service_name("test").gc(true).destinations(Vec::new()).load().unwrap();
    assert_eq!(warnings(in_code), ["spanprof: gc is on, but this runtime has no such samples"]);
}

#[test]
fn output_is_one_file_of_the_whole_run_without_a_receiver() {
    let _serial = one_at_a_time();
    let directory = std::env::temp_dir().join(format!("spanprof-outcome-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["flame.html", "run.pb.gz", "run.folded"] {
        let path = directory.join(name).to_str().unwrap().to_owned();
        let upload_interval = Duration::from_millis(100);
        let config =
            Config { destinations: None, output: Some(path.clone()), upload_interval, ..without_destination() };
        assert_eq!(config.effective_destinations(), []);
        let lines = lines_of(config, || {
            burn(Duration::from_millis(400));
        });
        let (level, line) = lines.last().unwrap();
        assert_eq!(*level, LogLevel::Info, "{line}");
        assert!(line.ends_with(&format!("{path} written")), "{line}");
        assert!(std::fs::metadata(&path).unwrap().len() > 0, "{path}");
    }
    let page = std::fs::read_to_string(directory.join("flame.html")).unwrap();
    assert!(page.contains("<title>test</title>") && page.contains("</html>"), "the page is complete");
    let data = spanprof_read::decode::pprof::decode(
        &std::fs::read(directory.join("run.pb.gz")).unwrap(),
        &spanprof_read::decode::DecodeLimits::default(),
    )
    .unwrap();
    let total: i64 = data.profiles().flat_map(|(_, profile)| profile.samples.iter().map(|it| profile.weight(it))).sum();
    assert!((200_000_000..900_000_000).contains(&total), "{total} ns of about 400 ms");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_unwritable_output_is_an_error_in_code_and_a_warning_in_a_variable() {
    let _serial = one_at_a_time();
    let config = Config { output: Some("/nonexistent/flame.html".to_owned()), ..without_destination() };
    let error = ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).err().unwrap();
    assert!(error.message.contains("there is no directory"), "{error}");
    let variables = [("SPANPROF_OUTPUT".to_owned(), "/nonexistent/flame.html".to_owned())].into_iter().collect();
    let config = Config::builder().destinations(Vec::new()).load_with(&variables).unwrap();
    let lines = lines_of(config, || ());
    assert!(lines[0].1.contains("SPANPROF_OUTPUT") && lines[0].1.ends_with("it is ignored"), "{lines:?}");
    let variables = [("SPANPROF_OUTPUT".to_owned(), "flame.svg".to_owned())].into_iter().collect();
    let config = Config::load(&[], &variables).unwrap();
    assert!(config.warnings[0].contains("expected a name that ends in .html"), "{:?}", config.warnings);
}

#[test]
fn a_heap_profile_without_the_allocator_is_one_warning_only_if_it_was_requested() {
    let _serial = one_at_a_time();
    let by_default = lines_of_runtime(Arc::new(NativeRuntime), without_destination(), || {});
    assert!(by_default.iter().all(|(level, _)| *level == LogLevel::Info), "{by_default:?}");
    let config = Config::builder().service_name("test").heap(true).destinations(Vec::new()).load().unwrap();
    let lines = lines_of_runtime(Arc::new(NativeRuntime), config, || {});
    let warnings: Vec<_> = lines.iter().filter(|(_, line)| line.contains("heap")).collect();
    assert_eq!(warnings.len(), 1, "{lines:?}");
    assert_eq!(warnings[0].0, LogLevel::Warning);
    assert!(warnings[0].1.contains("spanprof::alloc::Profiled"), "{}", warnings[0].1);
}
