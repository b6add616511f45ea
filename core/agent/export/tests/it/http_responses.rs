//! The response matrix of OTLP/HTTP: retryable and permanent failures, and the delays between attempts.

use crate::clocks::START_UNIX;
use crate::scripted_http::{HttpReply, ScriptedHttp};
use crate::shared::{assert_counters_balance, exporter_to, http_endpoint, payload, stats_of, wait_for, TEST_TIMEOUT};
use flate2::write::GzEncoder;
use spanprof_export::{Destination, DestinationStats, DiscardReason, Discarded, ExportPayload};
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Sends one payload of 7 samples to a receiver whose first response is `first` and whose later ones are success.
fn after_first_response(first: HttpReply) -> (DestinationStats, Vec<Duration>) {
    let server = ScriptedHttp::start(move |number, _| if number == 0 { first.clone() } else { HttpReply::ok() });
    let (exporter, clock) = exporter_to(Destination::OtlpHttp(http_endpoint(server.port())));
    exporter.enqueue(0, payload("body", 7));
    // No flush, which would end the delays that the tests check.
    let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);
    assert_eq!(server.received().len() as u64, 1 + stats.retries, "{stats:#?}");
    assert_counters_balance(&stats, 0);
    (stats, clock.pauses())
}

fn assert_sent_at_once(stats: &DestinationStats) {
    assert_eq!((stats.sent, stats.sent_samples, stats.retries), (1, 7, 0), "{stats:#?}");
    assert_eq!(stats.last_error, None);
    assert_eq!(stats.last_success_unix_ms, Some(START_UNIX.as_millis() as u64));
}

fn assert_dropped_at_once(stats: &DestinationStats, reason: DiscardReason) -> String {
    assert_eq!(stats.dropped(reason), Discarded { payloads: 1, samples: 7 }, "{stats:#?}");
    assert_eq!((stats.dropped_total().payloads, stats.retries), (1, 0), "{stats:#?}");
    stats.last_error.clone().unwrap()
}

#[test]
fn only_429_502_503_and_504_are_retried() {
    for status in [300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 408, 409, 410, 415, 422, 429, 431]
        .into_iter()
        .chain([500, 501, 502, 503, 504, 505, 507, 511, 599])
    {
        let (stats, pauses) = after_first_response(HttpReply::status(status));
        if [429, 502, 503, 504].contains(&status) {
            assert_eq!((stats.sent, stats.retries, stats.dropped_total().payloads), (1, 1, 0), "{status}: {stats:#?}");
            assert_eq!(pauses.len(), 1, "{status}");
            assert!(pauses[0] <= Duration::from_secs(1), "{status}: {pauses:?}");
        } else {
            let error = assert_dropped_at_once(&stats, DiscardReason::Permanent);
            assert!(error.contains(&status.to_string()), "{error}");
        }
    }
}

#[test]
fn any_2xx_with_an_empty_body_or_an_empty_partial_success_is_a_success() {
    for reply in [
        HttpReply::ok(),
        HttpReply::protobuf(200, vec![]),
        HttpReply::status(200),
        HttpReply::status(202),
        HttpReply::status(204),
        HttpReply::protobuf(200, vec![0x0a, 0x00]).with("X-Extra", "1"),
    ] {
        let (stats, _) = after_first_response(reply);
        assert_sent_at_once(&stats);
        assert_eq!(stats.last_warning, None);
    }
}

#[test]
fn a_partial_success_is_counted_and_never_sent_again() {
    // partial_success { rejected_profiles: 3, error_message: "too old" }
    let body = [&[0x0a, 11, 0x08, 3, 0x12, 7][..], b"too old"].concat();
    let (stats, _) = after_first_response(HttpReply::protobuf(200, body));

    let error = assert_dropped_at_once(&stats, DiscardReason::Partial);
    assert!(error.contains("rejected 3 profiles") && error.contains("too old"), "{error}");
    assert_eq!(stats.rejected_profiles, 3);
}

#[test]
fn an_error_message_without_rejected_profiles_is_a_warning() {
    let body = [&[0x0a, 9, 0x12, 7][..], b"be nice"].concat();
    let (stats, _) = after_first_response(HttpReply::protobuf(200, body));

    assert_sent_at_once(&stats);
    assert!(stats.last_warning.unwrap().contains("be nice"));
}

#[test]
fn rejected_profiles_are_read_from_a_json_response() {
    let json = |text: &str| HttpReply::Response { status: 200, headers: vec![], body: text.as_bytes().to_vec() };
    let json = |text: &str| json(text).with("Content-Type", "application/json; charset=utf-8");

    let (stats, _) = after_first_response(json("{}"));
    assert_sent_at_once(&stats);
    assert_eq!(stats.last_warning, None);
    let (stats, _) = after_first_response(json(r#"{"code":200,"stored":1}"#));
    assert_sent_at_once(&stats);
    assert!(stats.last_warning.unwrap().contains("stored"));
    let (stats, _) = after_first_response(json(r#"{"partialSuccess":{"rejectedProfiles": "2","errorMessage":"old"}}"#));
    assert!(assert_dropped_at_once(&stats, DiscardReason::Partial).contains("rejected 2 profiles"));
    assert_eq!(stats.rejected_profiles, 2);
}

#[test]
fn a_requested_delay_is_kept_up_to_five_minutes_with_jitter_and_an_invalid_one_is_ignored() {
    let now = UNIX_EPOCH + START_UNIX;
    let [past, date] = [now - Duration::from_secs(90), now + Duration::from_secs(90)].map(httpdate::fmt_http_date);
    for (requested, delay_s) in [
        ("7", 7),
        (date.as_str(), 90),
        ("86400", 300),
        ("18446744073709551615", 300),
        ("soon", 0),
        ("-5", 0),
        (past.as_str(), 0),
    ] {
        for status in [429, 503] {
            let (stats, pauses) = after_first_response(HttpReply::status(status).with("Retry-After", requested));
            assert_eq!((stats.sent, stats.retries), (1, 1), "{requested}");
            let slept: Duration = pauses.iter().sum();
            let bounds = Duration::from_secs(delay_s)..=Duration::from_secs(delay_s + 1);
            assert!(bounds.contains(&slept), "{requested}: {pauses:?}");
        }
    }
}

#[test]
fn the_delay_of_retry_info_in_an_http_error_is_kept() {
    // google.rpc.Status { code: 14, message: "busy", details: [RetryInfo { 5 s }] }
    let type_url = b"type.googleapis.com/google.rpc.RetryInfo";
    let mut any = vec![0x0a, type_url.len() as u8];
    any.extend(type_url);
    any.extend([0x12, 4, 0x0a, 2, 0x08, 5]);
    let mut status = vec![0x08, 14, 0x12, 4, b'b', b'u', b's', b'y', 0x1a, any.len() as u8];
    status.extend(any);
    let (stats, pauses) = after_first_response(HttpReply::protobuf(503, status));

    assert_eq!((stats.sent, stats.retries), (1, 1));
    assert!(pauses.iter().sum::<Duration>() >= Duration::from_secs(5), "{pauses:?}");
    assert!(stats.last_error.unwrap().contains("503 Service Unavailable: busy"));
}

#[test]
fn the_error_text_of_the_receiver_is_in_the_last_error() {
    // google.rpc.Status { code: 3, message: "bad index" }
    let status = [&[0x08, 3, 0x12, 9][..], b"bad index"].concat();
    let (stats, _) = after_first_response(HttpReply::protobuf(400, status));
    assert!(assert_dropped_at_once(&stats, DiscardReason::Permanent).contains("400 Bad Request: bad index"));

    let text = HttpReply::Response { status: 500, headers: vec![], body: b"no more disk\r\nat all".to_vec() };
    let (stats, _) = after_first_response(text.with("Content-Type", "text/plain; charset=utf-8"));
    assert!(assert_dropped_at_once(&stats, DiscardReason::Permanent).contains("no more disk  at all"));
}

#[test]
fn the_error_of_a_404_says_that_profiles_are_not_enabled_at_the_receiver() {
    let (stats, _) = after_first_response(HttpReply::status(404));

    let error = assert_dropped_at_once(&stats, DiscardReason::Permanent);
    assert!(error.contains("profiles are not enabled") && error.contains("service.profilesSupport"), "{error}");
}

#[test]
fn a_redirect_is_not_followed_and_its_target_is_logged_without_secrets() {
    let other = ScriptedHttp::start(|_, _| HttpReply::ok());
    for status in [301, 302, 307, 308] {
        let location = format!("http://user:marker@127.0.0.1:{}/v1development/profiles?key=marker", other.port());
        let (stats, _) = after_first_response(HttpReply::status(status).with("Location", location));

        let error = assert_dropped_at_once(&stats, DiscardReason::Permanent);
        let target = format!("`http://127.0.0.1:{}/v1development/profiles`", other.port());
        assert!(error.contains(&target) && !error.contains("marker"), "{error}");
    }
    assert_eq!(other.connections(), 0);
}

#[test]
fn the_error_of_http_to_a_grpc_port_names_the_protocol_to_set() {
    // The SETTINGS frame that a Collector's gRPC port sends first.
    let settings = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00".to_vec();
    let (stats, _) = after_first_response(HttpReply::Bytes(settings));
    let error = assert_dropped_at_once(&stats, DiscardReason::Permanent);
    assert!(error.contains("set protocol=grpc"), "{error}");
}

#[test]
fn a_malformed_response_is_no_success_and_not_retried() {
    let html = HttpReply::Response { status: 200, headers: vec![], body: b"<html>hello</html>".to_vec() };
    for reply in [
        HttpReply::Bytes(b"\x15\x03\x01\x00\x02\x02\x46 this is no HTTP at all\r\n\r\n".to_vec()),
        HttpReply::protobuf(200, vec![0xff; 20]),
        html.with("Content-Type", "text/html"),
        HttpReply::ok().with("Content-Encoding", "gzip"),
        HttpReply::ok().with("Content-Encoding", "br"),
    ] {
        let shown = format!("{reply:?}");
        let (stats, _) = after_first_response(reply);
        assert_eq!(stats.dropped(DiscardReason::Permanent).payloads, 1, "{shown}: {stats:#?}");
        assert_eq!(stats.retries, 0, "{shown}: {stats:#?}");
    }
}

#[test]
fn a_response_over_four_mebibytes_is_not_read_and_not_retried() {
    for status in [200, 503] {
        let (stats, _) = after_first_response(HttpReply::protobuf(status, vec![0; (4 << 20) + 1]));
        assert!(assert_dropped_at_once(&stats, DiscardReason::Permanent).contains("4 MiB"));
    }
}

#[test]
fn a_gzip_bomb_in_a_response_is_not_decompressed() {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..8 {
        encoder.write_all(&zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 100_000);
    for status in [200, 503] {
        let (stats, _) =
            after_first_response(HttpReply::protobuf(status, bomb.clone()).with("Content-Encoding", "gzip"));
        assert!(assert_dropped_at_once(&stats, DiscardReason::Permanent).contains("4 MiB"));
    }
}

#[test]
fn a_connection_that_ends_without_a_response_is_retried() {
    for reply in [HttpReply::Reset, HttpReply::Bytes(vec![]), HttpReply::Bytes(b"HTTP/1.1 20".to_vec())] {
        let shown = format!("{reply:?}");
        let (stats, pauses) = after_first_response(reply);
        assert_eq!((stats.sent, stats.retries, stats.dropped_total().payloads), (1, 1, 0), "{shown}: {stats:#?}");
        assert_eq!(pauses.len(), 1, "{shown}");
        assert!(stats.last_error.unwrap().contains("closed the connection without a response"), "{shown}");
    }
}

#[test]
fn a_request_whose_success_response_is_truncated_is_not_sent_again() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 99\r\n\r\n\x0a".to_vec();
    let (stats, _) = after_first_response(HttpReply::Bytes(head));

    assert_sent_at_once(&stats);
    assert!(stats.last_warning.unwrap().contains("ended within the response"));
}

/// Splits a body in the middle; `None` when it is empty.
fn halves(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (left, right) = body.split_at(body.len() / 2);
    (!left.is_empty()).then(|| vec![left.to_vec(), right.to_vec()])
}

#[test]
fn a_request_that_is_too_large_is_split_once_and_its_parts_keep_their_order() {
    for too_large in [HttpReply::status(413), {
        let text = b"http: request body too large".to_vec();
        HttpReply::Response { status: 400, headers: vec![("Content-Type", "text/plain".to_owned())], body: text }
    }] {
        let server = ScriptedHttp::start(
            move |_, received| if received.body.len() > 4 { too_large.clone() } else { HttpReply::ok() },
        );
        let (exporter, _) = exporter_to(Destination::OtlpHttp(http_endpoint(server.port())));

        exporter.enqueue(0, ExportPayload { split: Some(halves), ..payload("abcdefgh", 9) });
        assert!(exporter.flush(TEST_TIMEOUT));

        assert_eq!(server.bodies(), [b"abcdefgh".to_vec(), b"abcd".to_vec(), b"efgh".to_vec()]);
        let stats = stats_of(&exporter);
        assert_eq!((stats.sent, stats.sent_samples, stats.sent_bytes, stats.splits, stats.retries), (2, 9, 8, 1, 0));
        assert_counters_balance(&stats, 1);
    }
}

#[test]
fn a_part_that_is_still_too_large_is_discarded_and_the_other_delivered() {
    let server =
        ScriptedHttp::start(
            |_, received| if received.body.contains(&b'x') { HttpReply::status(413) } else { HttpReply::ok() },
        );
    let (exporter, _) = exporter_to(Destination::OtlpHttp(http_endpoint(server.port())));

    let before = exporter.loss_baseline();
    exporter.enqueue(0, ExportPayload { split: Some(halves), ..payload("abcdxxxx", 8) });
    exporter.enqueue(0, payload("xx", 5));
    assert!(!exporter.flush_since(&before, TEST_TIMEOUT));

    let stats = stats_of(&exporter);
    assert_eq!((stats.sent, stats.sent_samples, stats.splits), (1, 4, 1));
    assert_eq!(stats.dropped(DiscardReason::TooLarge), Discarded { payloads: 2, samples: 9 });
    assert_counters_balance(&stats, 1);
}
