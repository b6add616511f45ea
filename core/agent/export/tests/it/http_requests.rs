//! OTLP/HTTP: the contents of a request, and the use of connections.

use crate::scripted_http::{HttpReply, ScriptedHttp};
use crate::shared::{exporter_to, http_endpoint, payload, stats_of, wait_for, TEST_TIMEOUT};
use spanprof_export::{Compression, Destination, DiscardReason, Exporter, ExporterSettings, Secret};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::{Duration, Instant};

#[test]
fn a_request_is_a_post_of_gzipped_protobuf_with_the_given_headers() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let mut endpoint = http_endpoint(server.port());
    endpoint.url += "?tenant=7";
    endpoint.profiles_development_version = 3;
    endpoint.headers = vec![
        ("X-Scope-OrgID".to_owned(), Secret::from("team")),
        ("authorization".to_owned(), Secret::from("Bearer token")),
        ("Content-Type".to_owned(), Secret::from("text/plain")),
    ];
    let (exporter, _) = exporter_to(Destination::OtlpHttp(endpoint));

    exporter.enqueue(0, payload(vec![7; 10_000], 1));
    assert!(exporter.flush(TEST_TIMEOUT));

    let received = server.received().remove(0);
    assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", "/v1development/profiles?tenant=7"));
    assert_eq!(received.body, vec![7; 10_000]);
    for (name, value) in [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
        ("otlp-profiles-development-version", "3"),
        ("x-scope-orgid", "team"),
        ("authorization", "Bearer token"),
        ("host", &format!("127.0.0.1:{}", server.port())),
        ("user-agent", concat!("spanprof/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(received.header(name), Some(value), "{name}");
    }
    assert!(received.header("content-length").unwrap().parse::<usize>().unwrap() < 1000);
    assert_eq!(stats_of(&exporter).sent_bytes, 10_000);
}

#[test]
fn a_request_can_go_uncompressed() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let mut endpoint = http_endpoint(server.port());
    endpoint.compression = Compression::None;
    let (exporter, _) = exporter_to(Destination::OtlpHttp(endpoint));

    exporter.enqueue(0, payload("plain", 1));
    assert!(exporter.flush(TEST_TIMEOUT));

    let received = server.received().remove(0);
    assert_eq!((received.header("content-encoding"), received.header("content-length")), (None, Some("5")));
}

#[test]
fn one_connection_is_reused_for_many_windows() {
    let server = ScriptedHttp::start(|number, _| if number == 1 { HttpReply::status(400) } else { HttpReply::ok() });
    let (exporter, _) = exporter_to(Destination::OtlpHttp(http_endpoint(server.port())));

    for number in 0..5u8 {
        exporter.enqueue(0, payload([number], 1));
        exporter.flush(TEST_TIMEOUT);
    }

    assert_eq!(server.bodies(), [[0], [1], [2], [3], [4]]);
    assert_eq!(server.connections(), 1);
}

#[test]
fn an_idle_connection_that_the_receiver_closed_is_replaced_without_a_failed_attempt() {
    let server = ScriptedHttp::start(|number, _| {
        if number == 0 {
            HttpReply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
        } else {
            HttpReply::ok()
        }
    });
    let (exporter, clock) = exporter_to(Destination::OtlpHttp(http_endpoint(server.port())));

    for number in 0..2u8 {
        exporter.enqueue(0, payload([number], 1));
        assert!(exporter.flush(TEST_TIMEOUT));
    }

    let stats = stats_of(&exporter);
    assert_eq!((stats.sent, stats.retries, stats.last_error), (2, 0, None));
    assert_eq!((server.connections(), clock.pauses().len()), (2, 0));
}

#[test]
fn an_idle_connection_that_fails_in_a_request_is_replaced_once_within_the_attempt() {
    let server = ScriptedHttp::start(|number, _| if number == 1 { HttpReply::Reset } else { HttpReply::ok() });
    let (exporter, _) = exporter_to(Destination::OtlpHttp(http_endpoint(server.port())));

    for number in 0..2u8 {
        exporter.enqueue(0, payload([number], 1));
        assert!(exporter.flush(TEST_TIMEOUT));
    }

    let stats = stats_of(&exporter);
    assert_eq!((stats.sent, stats.retries), (2, 0));
    assert_eq!(server.bodies(), [[0], [1], [1]]);
}

#[test]
fn destinations_have_separate_queues_and_do_not_block_each_other() {
    let silent = ScriptedHttp::start(|_, _| HttpReply::Silence);
    let responsive = ScriptedHttp::start(|_, _| HttpReply::ok());
    let destinations = [&silent, &responsive].map(|server| Destination::OtlpHttp(http_endpoint(server.port())));
    let exporter = Exporter::start(destinations.to_vec(), ExporterSettings::default()).unwrap();

    exporter.enqueue(0, payload("a", 1));
    exporter.enqueue(1, payload("b", 1));
    exporter.enqueue(2, payload("nowhere", 1));
    let until = Instant::now() + TEST_TIMEOUT;
    while exporter.stats()[1].sent == 0 {
        assert!(Instant::now() < until, "one blocks the other: {:#?}", exporter.stats());
        std::thread::sleep(Duration::from_millis(2));
    }

    let stats = exporter.stats();
    assert_eq!((stats[0].sent, stats[0].queue_payloads), (0, 1));
    assert_eq!((stats[1].sent, stats[1].queue_payloads), (1, 0));
    assert_eq!(responsive.bodies(), [b"b"]);
}

#[test]
fn a_request_over_the_limit_of_otlp_is_never_sent() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let settings = ExporterSettings { max_request_bytes: 1000, ..ExporterSettings::default() };
    let destination = Destination::OtlpHttp(http_endpoint(server.port()));
    let exporter = Exporter::start(vec![destination], settings).unwrap();

    let mut large = payload(vec![1; 1500], 10);
    exporter.enqueue(0, large.clone());
    large.split = Some(|body| Some(body.chunks(750).map(<[u8]>::to_vec).collect()));
    exporter.enqueue(0, large);
    exporter.flush(TEST_TIMEOUT);

    let stats = stats_of(&exporter);
    assert_eq!(
        (stats.dropped(DiscardReason::TooLarge).payloads, stats.dropped(DiscardReason::TooLarge).samples),
        (1, 10)
    );
    assert_eq!((stats.sent, stats.sent_samples, stats.splits), (2, 10, 1));
    assert_eq!(server.bodies(), [vec![1; 750], vec![1; 750]]);
    assert!(stats.last_error.unwrap().contains("1500 bytes is over the limit of 1000 bytes"));
}

#[test]
fn a_response_that_arrives_before_the_body_is_sent_is_handled() {
    // Larger than the socket buffers, so that the response arrives before the whole body is sent.
    let body: Vec<u8> = std::iter::repeat_with({
        let mut random = fastrand::Rng::with_seed(3);
        move || random.u8(..)
    })
    .take(12 << 20)
    .collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let mut endpoint = http_endpoint(port);
    endpoint.compression = Compression::None;
    let (exporter, _) = exporter_to(Destination::OtlpHttp(endpoint));

    exporter.enqueue(0, payload(body, 2));
    let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);

    assert_eq!((stats.dropped(DiscardReason::TooLarge).payloads, stats.retries), (1, 0), "{stats:#?}");
}
