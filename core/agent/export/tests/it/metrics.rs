//! Delivery of the profiler's own metrics: address, headers, failures, and their independence of the profiles.

use crate::clocks::InstantClock;
use crate::scripted_grpc::{GrpcReply, ScriptedGrpc};
use crate::scripted_http::{BlackHole, HttpReply, RefusingPort, ScriptedHttp};
use crate::shared::{grpc_endpoint, http_endpoint, payload, stats_of, TEST_TIMEOUT};
use spanprof_export::{Compression, Destination, Exporter, ExporterSettings, MetricsStats, OtlpEndpoint, Secret};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn metrics_endpoint(port: u16) -> OtlpEndpoint {
    OtlpEndpoint::new(format!("http://127.0.0.1:{port}/v1/metrics"))
}

/// Without destinations of profiles.
fn exporter_of(receiver: Destination) -> (Exporter, Arc<InstantClock>) {
    let clock = InstantClock::new();
    let settings = ExporterSettings { metrics: vec![receiver], clock: clock.clone(), ..ExporterSettings::default() };
    (Exporter::start(Vec::new(), settings).unwrap(), clock)
}

fn http_exporter(server: &ScriptedHttp) -> Exporter {
    exporter_of(Destination::OtlpHttp(metrics_endpoint(server.port()))).0
}

fn wait_until(exporter: &Exporter, what: &str, condition: impl Fn(&MetricsStats) -> bool) -> MetricsStats {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let stats = exporter.metrics_stats().remove(0);
        if condition(&stats) {
            return stats;
        }
        assert!(Instant::now() < until, "timed out waiting until {what}: {stats:#?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends one request, and waits until it is settled.
fn send(exporter: &Exporter, body: &[u8]) -> MetricsStats {
    let settled = |stats: &MetricsStats| stats.sent + stats.failed;
    let before = settled(&exporter.metrics_stats()[0]);
    exporter.send_metrics(body.to_vec());
    wait_until(exporter, "it is settled", |stats| settled(stats) > before)
}

#[test]
fn metrics_over_http_have_the_headers_of_the_destination_without_the_revision_of_profiles() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let mut endpoint = metrics_endpoint(server.port());
    endpoint.headers = vec![("authorization".to_owned(), Secret::from("Bearer token"))];
    let (exporter, _) = exporter_of(Destination::OtlpHttp(endpoint));

    let stats = send(&exporter, &[7; 5000]);

    assert_eq!((stats.sent, stats.failed, stats.last_error), (1, 0, None));
    let received = server.received().remove(0);
    assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", "/v1/metrics"));
    assert_eq!(received.body, [7; 5000]);
    assert_eq!(received.header("authorization"), Some("Bearer token"));
    assert_eq!(received.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(received.header("content-encoding"), Some("gzip"));
    assert_eq!(received.header("otlp-profiles-development-version"), None);
}

#[test]
fn metrics_over_grpc_are_calls_of_the_metrics_service() {
    for compression in [Compression::Gzip, Compression::None] {
        let server = ScriptedGrpc::start(|_, _| GrpcReply::Ok(Vec::new()));
        let endpoint = OtlpEndpoint {
            compression,
            headers: vec![("x-tenant".to_owned(), Secret::from("team"))],
            ..grpc_endpoint(server.port())
        };
        let (exporter, _) = exporter_of(Destination::OtlpGrpc(endpoint));

        assert_eq!(send(&exporter, b"body").sent, 1);

        let received = server.received().remove(0);
        assert_eq!(received.path, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
        assert_eq!((received.body.as_slice(), received.metadata["x-tenant"].to_str().unwrap()), (&b"body"[..], "team"));
        assert_eq!(received.was_compressed, compression == Compression::Gzip);
        assert!(!received.metadata.contains_key("otlp-profiles-development-version"));
    }
}

#[test]
fn a_receiver_without_a_service_for_metrics_gets_one_request_and_the_message_names_the_way_out() {
    let server = ScriptedHttp::start(|_, _| HttpReply::status(404));
    let exporter = http_exporter(&server);
    let stats = send(&exporter, b"one");
    assert!(stats.stopped && stats.failed == 1, "{stats:#?}");
    let error = stats.last_error.unwrap();
    assert!(
        error.contains("404") && error.contains("metrics pipeline") && error.contains("metrics_endpoint"),
        "{error}"
    );
    for _ in 0..20 {
        exporter.send_metrics(b"more".to_vec());
    }
    exporter.stop(TEST_TIMEOUT);
    assert_eq!(server.bodies(), [b"one"]);
    assert_eq!(exporter.metrics_stats()[0].failed, 1);

    for reply in [GrpcReply::status(12, "unknown service"), GrpcReply::Http(404)] {
        let server = ScriptedGrpc::start(move |_, _| reply.clone());
        let (exporter, _) = exporter_of(Destination::OtlpGrpc(grpc_endpoint(server.port())));
        let stats = send(&exporter, b"one");
        assert!(stats.stopped && stats.last_error.unwrap().contains("metrics pipeline"));
        exporter.send_metrics(b"more".to_vec());
        exporter.stop(TEST_TIMEOUT);
        assert_eq!(server.bodies(), [b"one"]);
    }
}

#[test]
fn a_failed_request_is_not_retried_and_the_next_one_is_sent() {
    for status in [400, 401, 413, 429, 500, 503] {
        let server =
            ScriptedHttp::start(move |number, _| if number == 0 { HttpReply::status(status) } else { HttpReply::ok() });
        let exporter = http_exporter(&server);

        let failed = send(&exporter, b"old");
        assert_eq!((failed.sent, failed.failed, failed.failed_in_a_row, failed.stopped), (0, 1, 1, false), "{status}");
        assert_eq!(failed.refused, ![429, 503].contains(&status), "{status}");
        assert!(failed.last_error.unwrap().contains(&status.to_string()));
        let sent = send(&exporter, b"new");

        assert_eq!((sent.sent, sent.failed, sent.failed_in_a_row, sent.refused), (1, 1, 0, false), "{status}");
        assert_eq!(server.bodies(), [b"old", b"new"], "{status}");
    }
}

#[test]
fn rejected_data_points_are_a_failure_with_the_text_of_the_receiver() {
    // partial_success { rejected_data_points: 3, error_message: "unit" }
    let protobuf = HttpReply::protobuf(200, b"\x0a\x08\x08\x03\x12\x04unit".to_vec());
    let json = HttpReply::Response {
        status: 200,
        headers: vec![("Content-Type", "application/json".to_owned())],
        body: br#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"unit"}}"#.to_vec(),
    };
    for reply in [protobuf, json] {
        let server = ScriptedHttp::start(move |_, _| reply.clone());
        let stats = send(&http_exporter(&server), b"body");
        assert_eq!((stats.sent, stats.failed, stats.stopped), (0, 1, false));
        let error = stats.last_error.unwrap();
        assert!(error.contains("rejected 3 data points") && error.contains("unit"), "{error}");
    }
}

#[test]
fn while_a_request_is_in_flight_only_the_newest_waits() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let server = ScriptedHttp::start(move |number, _| {
        if number == 0 {
            released.recv().unwrap();
        }
        HttpReply::ok()
    });
    let exporter = http_exporter(&server);
    exporter.send_metrics(vec![0]);
    let until = Instant::now() + TEST_TIMEOUT;
    while server.received().is_empty() {
        assert!(Instant::now() < until, "the first request does not arrive");
        std::thread::sleep(Duration::from_millis(2));
    }
    (1..=100).for_each(|number| exporter.send_metrics(vec![number]));
    release.send(()).unwrap();

    let stats = wait_until(&exporter, "both are sent", |stats| stats.sent == 2);

    assert_eq!(server.bodies(), [[0], [100]]);
    assert_eq!(stats.failed, 99, "the replaced requests are counted");
}

#[test]
fn the_delay_that_a_receiver_requests_is_honored() {
    let server = ScriptedHttp::start(|number, _| match number {
        0 => HttpReply::status(429).with("Retry-After", "90"),
        _ => HttpReply::ok(),
    });
    let (exporter, clock) = exporter_of(Destination::OtlpHttp(metrics_endpoint(server.port())));

    send(&exporter, b"old");
    exporter.send_metrics(b"new".to_vec());
    wait_until(&exporter, "the next is sent", |stats| stats.sent == 1);

    assert_eq!(clock.pauses(), [Duration::from_secs(90)]);
}

#[test]
fn a_silent_metrics_endpoint_delays_no_profile() {
    let profiles = ScriptedHttp::start(|_, _| HttpReply::ok());
    let silent = BlackHole::open();
    let settings = ExporterSettings {
        metrics: vec![Destination::OtlpHttp(metrics_endpoint(silent.port))],
        ..ExporterSettings::default()
    };
    let exporter = Exporter::start(vec![Destination::OtlpHttp(http_endpoint(profiles.port()))], settings).unwrap();

    exporter.send_metrics(b"metrics".to_vec());
    exporter.enqueue(0, payload("profile", 1));
    assert!(exporter.flush(TEST_TIMEOUT), "{:#?}", stats_of(&exporter));
    exporter.enqueue(0, payload("last", 1));
    assert!(exporter.stop(Duration::from_millis(500)), "lost metrics are no lost profiles");

    assert_eq!(profiles.bodies(), [&b"profile"[..], b"last"]);
    let stats = wait_until(&exporter, "it is counted", |stats| stats.failed > 0);
    assert_eq!((stats.sent, stats.failed), (0, 1));
}

#[test]
fn stop_sends_the_last_metrics_within_its_deadline() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let exporter = http_exporter(&server);
    exporter.send_metrics(b"last".to_vec());
    assert!(exporter.stop(TEST_TIMEOUT));
    assert_eq!(server.bodies(), [b"last"]);
    exporter.send_metrics(b"late".to_vec());
    let stats = exporter.metrics_stats().remove(0);
    assert_eq!((stats.sent, stats.failed), (1, 1));

    let refusing = RefusingPort::open();
    let (exporter, _) = exporter_of(Destination::OtlpHttp(metrics_endpoint(refusing.port)));
    exporter.send_metrics(b"last".to_vec());
    let began = Instant::now();
    exporter.stop(Duration::from_secs(60));
    assert!(began.elapsed() < TEST_TIMEOUT, "stop does not wait for an unreachable receiver");
    let stats = exporter.metrics_stats().remove(0);
    assert!(stats.last_error.unwrap().contains("cannot connect"));
}

#[test]
fn destinations_other_than_otlp_receive_no_metrics() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let (exporter, _) = exporter_of(Destination::Pyroscope(http_endpoint(server.port())));
    exporter.send_metrics(b"body".to_vec());
    exporter.stop(TEST_TIMEOUT);
    assert_eq!((exporter.metrics_stats(), server.received().len()), (Vec::new(), 0));
}
