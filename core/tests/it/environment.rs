//! The environment never stops the host: values that fail only at the start of the profiler.

use std::sync::Arc;

use spanprof_aggregate::testing::FakeRuntime;
use spanprof_config::{Config, Environment, ErrorKind};
use spanprof_profiler::ProfilerHandle;

use crate::profiler::{one_at_a_time, CapturedLog};

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Starts and stops with these variables, and returns the lines of the log.
fn lines_of_start(variables: &[(&str, &str)]) -> Vec<String> {
    let log = CapturedLog::begin();
    let config = Config::builder().stop_timeout(std::time::Duration::ZERO).load_with(&environment(variables)).unwrap();
    let profiler = ProfilerHandle::start_with_runtime(config, Arc::new(FakeRuntime::default())).unwrap();
    assert!(profiler.is_running());
    profiler.stop();
    log.texts()
}

#[test]
fn an_unusable_destination_from_a_variable_is_a_warning_and_other_values_apply() {
    let _serial = one_at_a_time();
    for (variable, value) in [
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent/ca.pem"),
        ("SPANPROF_HEADERS", "bad name=x"),
        ("SPANPROF_FILE_DIRECTORY", "/proc/nonexistent"),
        ("OTEL_EXPORTER_OTLP_PROFILES_CERTIFICATE", "/dev/null"),
    ] {
        let lines = lines_of_start(&[("SPANPROF_ENDPOINT", "https://127.0.0.1:1"), (variable, value)]);
        assert!(lines.iter().any(|line| line.contains(variable) && line.ends_with("is ignored")), "{lines:?}");
    }
    let both = [
        ("SPANPROF_ENDPOINT", "https://127.0.0.1:1"),
        ("SPANPROF_CLIENT_KEY", "/nonexistent/key"),
        ("SPANPROF_CLIENT_CERTIFICATE", "/nonexistent/pem"),
    ];
    assert!(lines_of_start(&both).iter().any(|line| line.contains("SPANPROF_CLIENT_")));
    let proxy = [("SPANPROF_ENDPOINT", "http://host.invalid:1"), ("http_proxy", "socks5://x")];
    assert!(lines_of_start(&proxy).iter().any(|line| line.contains("the variables for proxies are ignored")));
}

#[test]
fn the_same_value_in_code_is_an_error() {
    let _serial = one_at_a_time();
    let config = Config::builder()
        .stop_timeout(std::time::Duration::ZERO)
        .endpoint("https://127.0.0.1:1".to_owned())
        .certificate("/nonexistent/ca.pem".to_owned())
        .load_with(&environment(&[]))
        .unwrap();
    let error = ProfilerHandle::start_with_runtime(config, Arc::new(FakeRuntime::default())).err().unwrap();
    assert_eq!(error.kind, ErrorKind::InvalidDestination);
}
