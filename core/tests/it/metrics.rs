//! The profiler's own metrics: they are the numbers of `stats()`, and their receiver never affects the profiles.

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use spanprof_aggregate::testing::FakeRuntime;
use spanprof_aggregate::StatValue;
use spanprof_config::{Compression, Config};
use spanprof_profiler::ProfilerHandle;

use crate::profiler::{burn, one_at_a_time, read_request, wait_until, without_destination, CapturedLog};

/// A request: path and body.
type Received = (String, Vec<u8>);

/// A receiver of profiles and metrics; the status of the response to metrics is an argument.
struct TwoSignalReceiver {
    address: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl TwoSignalReceiver {
    fn start(metrics_status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let requests = received.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), requests) = (stream, requests.clone()) else { return };
                std::thread::spawn(move || {
                    while let Some((head, body)) = read_request(&mut stream) {
                        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                        let status = if path.contains("metrics") { metrics_status } else { 200 };
                        requests.lock().unwrap().push((path, body));
                        let response = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                        if stream.write_all(response.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, received }
    }

    fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let received = self.received.lock().unwrap();
        received.iter().filter(|(of, _)| of == path).map(|(_, body)| body.clone()).collect()
    }

    fn config(&self) -> Config {
        Config {
            destinations: None,
            endpoint: Some(self.address.clone()),
            metrics: true,
            metrics_interval: Duration::from_millis(100),
            upload_interval: Duration::from_millis(200),
            compression: Compression::Uncompressed,
            ..without_destination()
        }
    }
}

/// The log lines about metrics during `run`.
fn warnings_of(run: impl FnOnce()) -> Vec<String> {
    let log = CapturedLog::begin();
    run();
    log.texts().into_iter().filter(|line| line.contains("metrics")).collect()
}

const METRICS: &str = "/v1/metrics";
const PROFILES: &str = "/v1development/profiles";

#[test]
fn the_last_metrics_have_every_number_of_stats() {
    let _serial = one_at_a_time();
    let receiver = TwoSignalReceiver::start(200);
    let profiler = ProfilerHandle::start_with_runtime(receiver.config(), FakeRuntime::new()).unwrap();
    wait_until("metrics arrive twice", || {
        burn(Duration::from_millis(20));
        receiver.bodies(METRICS).len() >= 2
    });
    assert!(profiler.stop());
    let stats = profiler.stats();
    let bodies = receiver.bodies(METRICS);
    let last = bodies.last().unwrap();
    let has = |name: &str| last.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    // Those of other parts have attributes instead of names of their own (`report::metrics`).
    let is_own =
        |name: &str| !["dropped.", "export.", "metrics.", "clock.signal"].iter().any(|part| name.starts_with(part));
    let counts = stats.entries.iter().filter(|(_, value)| matches!(value, StatValue::Count(_)));
    let names: Vec<String> =
        counts.filter(|(name, _)| is_own(name)).map(|(name, _)| format!("spanprof.{name}")).collect();
    assert!(names.len() > 60 && names.iter().all(|name| has(name)), "{names:?}");
    assert!(has("service.instance.id"), "two processes are two series");
    assert_eq!(stats.counter("metrics.0.sent"), bodies.len() as u64);
}

#[test]
fn a_receiver_that_refuses_metrics_still_gets_every_profile_and_one_warning_names_the_way_out() {
    let _serial = one_at_a_time();
    for (status, is_final) in [(404, true), (401, false)] {
        let receiver = TwoSignalReceiver::start(status);
        let mut stats = None;
        let warnings = warnings_of(|| {
            let profiler = ProfilerHandle::start_with_runtime(receiver.config(), FakeRuntime::new()).unwrap();
            wait_until("three profiles arrive", || {
                burn(Duration::from_millis(20));
                receiver.bodies(PROFILES).len() >= 3
            });
            assert!(profiler.stop(), "lost metrics are no lost profiles");
            stats = Some(profiler.stats());
        });
        let stats = stats.unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(&format!("{}{METRICS} answered {status}", receiver.address)), "{warnings:?}");
        assert_eq!(receiver.bodies(METRICS).len() == 1, is_final, "{status}");
        assert_eq!(warnings[0].contains("set metrics_endpoint"), is_final, "{warnings:?}");
        assert_eq!(stats.counter("metrics.0.failed"), receiver.bodies(METRICS).len() as u64);
        assert_eq!(stats.counter("export.0.sent"), receiver.bodies(PROFILES).len() as u64);
        assert_eq!(stats.get("export.0.last_error"), Some(&StatValue::Text(String::new())));
    }
}

#[test]
fn a_run_whose_metrics_never_arrived_ends_with_a_warning() {
    let _serial = one_at_a_time();
    let receiver = TwoSignalReceiver::start(200);
    let unreachable = Some("http://127.0.0.1:1/v1/metrics".to_owned());
    let config = Config {
        metrics_endpoint: unreachable,
        metrics_interval: Duration::from_secs(60),
        upload_interval: Duration::from_secs(60),
        ..receiver.config()
    };
    let warnings = warnings_of(|| {
        let profiler = ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).unwrap();
        assert!(profiler.stop(), "lost metrics are no lost profiles");
    });
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("cannot connect") && warnings[0].contains("metrics.0.failed"), "{warnings:?}");
}

#[test]
fn without_the_setting_no_metrics_are_sent_and_a_missing_receiver_is_a_warning() {
    let _serial = one_at_a_time();
    let receiver = TwoSignalReceiver::start(200);
    let own_path = Some(format!("{}/own?token=marker", receiver.address));
    let configs = [
        Config { metrics: false, ..receiver.config() },
        Config { endpoint: own_path, ..receiver.config() },
        Config { destinations: Some(Vec::new()), ..receiver.config() },
    ];
    let warnings = warnings_of(|| {
        for config in configs {
            let profiler = ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).unwrap();
            assert_eq!(profiler.stats().get("metrics.0.sent"), None);
            profiler.stop();
        }
    });
    assert_eq!(receiver.bodies(METRICS).len(), 0);
    let [unknown_path, no_destination] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(unknown_path.contains("set metrics_endpoint") && !unknown_path.contains("marker"), "{unknown_path}");
    assert!(no_destination.contains("no OTLP destination; set metrics_endpoint"), "{no_destination}");
}
