//! The profiler's own metrics: their values are those of `stats()`, and their receiver never affects the profiles.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prost::{Message, Oneof};
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_aggregate::StatValue;
use spanprof_config::{Compression, Config};
use spanprof_profiler::{ProfilerHandle, Stats};

use crate::profiler::{burn, one_at_a_time, read_request, without_destination, TIMEOUT};

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

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < until, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const METRICS: &str = "/v1/metrics";
const PROFILES: &str = "/v1development/profiles";

/// Names of the metrics of a number in `stats()`, with its attributes except the kind of a destination.
fn expected_series(name: &str) -> Option<String> {
    let parts: Vec<_> = name.split('.').collect();
    Some(match parts.as_slice() {
        ["clock", "signal"] => return None,
        // Of other units than samples.
        ["dropped", other @ ("code_ended" | "open_requests")] => format!("spanprof.dropped.{other}"),
        ["dropped", reason] => format!("spanprof.dropped reason={reason}"),
        ["export", number, "dropped_samples"] => format!("spanprof.export.dropped_samples destination={number}"),
        ["export", number, field] => match field.strip_prefix("dropped_") {
            Some(reason) => format!("spanprof.export.dropped destination={number} reason={reason}"),
            None => format!("spanprof.export.{field} destination={number}"),
        },
        ["metrics", number, field] => format!("spanprof.metrics.{field} receiver={number}"),
        _ => format!("spanprof.{name}"),
    })
}

fn expected(stats: &Stats) -> BTreeMap<String, u64> {
    let counts = stats.entries.iter().filter_map(|(name, value)| match value {
        StatValue::Count(count) => Some((expected_series(name)?, *count)),
        StatValue::Text(_) => None,
    });
    counts.collect()
}

struct Series {
    value: u64,
    is_total: bool,
    start: u64,
    time: u64,
}

/// Each data point of a request, by name and attributes.
fn series_of(body: &[u8]) -> (BTreeMap<String, String>, BTreeMap<String, Series>) {
    let request = MetricsRequest::decode(body).unwrap();
    let [of_resource] = request.resource_metrics.as_slice() else { panic!("{request:#?}") };
    let [of_scope] = of_resource.scope_metrics.as_slice() else { panic!("{request:#?}") };
    assert_eq!(of_scope.scope.as_ref().unwrap().name, "spanprof");
    let mut found = BTreeMap::new();
    for metric in &of_scope.metrics {
        let (points, is_total) = match metric.data.as_ref().unwrap() {
            MetricData::Gauge(gauge) => (&gauge.data_points, false),
            MetricData::Sum(sum) => {
                assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (2, true), "{}", metric.name);
                (&sum.data_points, true)
            }
        };
        assert!(!metric.description.is_empty(), "{}", metric.name);
        for point in points {
            let attributes = texts(&point.attributes);
            let attributes: Vec<_> = attributes.iter().filter(|(key, _)| *key != "kind").collect();
            let words = attributes.iter().map(|(key, value)| format!(" {key}={value}"));
            let series = Series {
                value: point.as_int.unwrap().try_into().unwrap(),
                is_total,
                start: point.start_time_unix_nano,
                time: point.time_unix_nano,
            };
            let name = format!("{}{}", metric.name, words.collect::<String>());
            assert!(found.insert(name, series).is_none(), "{} occurs twice", metric.name);
        }
    }
    (texts(&of_resource.resource.as_ref().unwrap().attributes), found)
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| attribute.value.as_ref().unwrap().string_value.clone().unwrap();
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

#[test]
fn the_last_metrics_have_every_number_of_stats() {
    let _serial = one_at_a_time();
    let receiver = TwoSignalReceiver::start(200);
    let profiler = ProfilerHandle::start_with_runtime(receiver.config(), FakeRuntime::new()).unwrap();
    wait_until("metrics arrive twice", || {
        burn(Duration::from_millis(20));
        receiver.bodies(METRICS).len() >= 2
    });
    let before = expected(&profiler.stats());
    assert!(profiler.stop());
    let after = expected(&profiler.stats());

    let bodies = receiver.bodies(METRICS);
    let (resource, last) = series_of(bodies.last().unwrap());
    assert_eq!(resource["service.name"], "test");
    assert!(resource.contains_key("service.instance.id"), "two processes are two series: {resource:?}");
    let names = |map: &BTreeMap<String, u64>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(last.keys().cloned().collect::<Vec<_>>(), names(&after));
    assert!(last.len() > 100, "{}", last.len());
    let mut equal = 0;
    for (name, series) in &last {
        let (least, most) = (before[name], after[name]);
        if most < least && name.starts_with("spanprof.clock.") {
            // The counters of the clocks begin anew when the clocks stop.
            assert!(series.value == most, "{name}: {}", series.value);
        } else if series.is_total {
            assert!((least..=most).contains(&series.value), "{name}: {least} <= {} <= {most}", series.value);
        }
        equal += usize::from(series.value == most);
        assert_eq!(series.start > 0, series.is_total, "{name}");
        assert!(series.start <= series.time, "{name}");
    }
    assert!(equal > 80, "{equal} of {} are equal", last.len());
    let cpu = &last["spanprof.samples.cpu"];
    assert!(cpu.is_total && cpu.value == after["spanprof.samples.cpu"] && cpu.value > 0, "the last window is included");
    assert_eq!(profiler.stats().counter("metrics.0.sent"), bodies.len() as u64);
    let (_, first) = series_of(&bodies[0]);
    assert_eq!(first["spanprof.samples.cpu"].start, cpu.start, "a total has one start");
}

#[test]
fn a_receiver_that_refuses_metrics_still_gets_every_profile_and_one_warning_names_the_way_out() {
    let _serial = one_at_a_time();
    for (status, is_final) in [(404, true), (401, false)] {
        let receiver = TwoSignalReceiver::start(status);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        spanprof_profiler::set_log_callback(Some(Arc::new(move |_, line: &str| {
            sink.lock().unwrap().push(line.to_owned())
        })));
        let profiler = ProfilerHandle::start_with_runtime(receiver.config(), FakeRuntime::new()).unwrap();
        wait_until("three profiles arrive", || {
            burn(Duration::from_millis(20));
            receiver.bodies(PROFILES).len() >= 3
        });
        assert!(profiler.stop(), "lost metrics are no lost profiles");
        let stats = profiler.stats();
        spanprof_profiler::set_log_callback(None);

        let lines = lines.lock().unwrap();
        let warnings: Vec<_> = lines.iter().filter(|line| line.contains("metrics")).collect();
        assert_eq!(warnings.len(), 1, "{lines:?}");
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
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    spanprof_profiler::set_log_callback(Some(Arc::new(move |_, line: &str| {
        sink.lock().unwrap().push(line.to_owned())
    })));
    let unreachable = Some("http://127.0.0.1:1/v1/metrics".to_owned());
    let config = Config {
        metrics_endpoint: unreachable,
        metrics_interval: Duration::from_secs(60),
        upload_interval: Duration::from_secs(60),
        ..receiver.config()
    };
    let profiler = ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).unwrap();
    assert!(profiler.stop(), "lost metrics are no lost profiles");
    spanprof_profiler::set_log_callback(None);
    let lines = lines.lock().unwrap();
    let warnings: Vec<_> = lines.iter().filter(|line| line.contains("metrics")).collect();
    assert_eq!(warnings.len(), 1, "{lines:?}");
    assert!(warnings[0].contains("cannot connect") && warnings[0].contains("metrics.0.failed"), "{warnings:?}");
}

#[test]
fn metrics_go_to_their_own_endpoint_without_the_headers_of_the_profiles() {
    let _serial = one_at_a_time();
    let receiver = TwoSignalReceiver::start(200);
    // Without a destination of profiles.
    let config = Config {
        destinations: Some(Vec::new()),
        metrics_endpoint: Some(format!("{}/own/path", receiver.address)),
        ..receiver.config()
    };
    let profiler = ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).unwrap();
    profiler.stop();
    let bodies = receiver.bodies("/own/path");
    assert_eq!(bodies.len(), 1, "stop sends the last metrics");
    assert!(series_of(&bodies[0]).1.contains_key("spanprof.samples.cpu"));
}

#[test]
fn without_the_setting_no_metrics_are_sent_and_a_missing_receiver_is_a_warning() {
    let _serial = one_at_a_time();
    let receiver = TwoSignalReceiver::start(200);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    spanprof_profiler::set_log_callback(Some(Arc::new(move |_, line: &str| {
        sink.lock().unwrap().push(line.to_owned())
    })));
    let own_path = Some(format!("{}/own?token=marker", receiver.address));
    for config in [
        Config { metrics: false, ..receiver.config() },
        Config { endpoint: own_path, ..receiver.config() },
        Config { destinations: Some(Vec::new()), ..receiver.config() },
    ] {
        let profiler = ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).unwrap();
        assert_eq!(profiler.stats().get("metrics.0.sent"), None);
        profiler.stop();
    }
    spanprof_profiler::set_log_callback(None);
    assert_eq!(receiver.bodies(METRICS).len(), 0);
    let lines = lines.lock().unwrap();
    let warnings: Vec<_> = lines.iter().filter(|line| line.contains("metrics")).collect();
    let [unknown_path, no_destination] = warnings.as_slice() else { panic!("{lines:?}") };
    assert!(unknown_path.contains("set metrics_endpoint") && !unknown_path.contains("marker"), "{unknown_path}");
    assert!(no_destination.contains("no OTLP destination; set metrics_endpoint"), "{no_destination}");
}

/// opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest and the messages in it, as far as they are sent.
#[derive(Clone, PartialEq, Message)]
struct MetricsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<AttributeList>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeList {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<ScopeName>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<MetricMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeName {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct MetricMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(oneof = "MetricData", tags = "5, 7")]
    data: Option<MetricData>,
}

#[derive(Clone, PartialEq, Oneof)]
enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(PointList),
    #[prost(message, tag = "7")]
    Sum(PointList),
}

#[derive(Clone, PartialEq, Message)]
struct PointList {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(sfixed64, optional, tag = "6")]
    as_int: Option<i64>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<TextValue>,
}

#[derive(Clone, PartialEq, Message)]
struct TextValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
}
