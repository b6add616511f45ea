//! Pyroscope's push protocol: the contents of a request, and the responses of the Connect protocol.

use crate::scripted_http::{HttpReply, ScriptedHttp};
use crate::shared::{exporter_to, payload, stats_of, wait_for, TEST_TIMEOUT};
use spanprof_export::{Destination, DiscardReason, Exporter, OtlpEndpoint, Secret};

const PATH: &str = "/push.v1.PusherService/Push";

fn exporter_at(port: u16) -> Exporter {
    let mut endpoint = OtlpEndpoint::new(format!("http://127.0.0.1:{port}{PATH}"));
    endpoint.compression = spanprof_export::Compression::None;
    endpoint.headers = vec![("x-scope-orgid".to_owned(), Secret::from("team"))];
    exporter_to(Destination::Pyroscope(endpoint)).0
}

/// As Connect sends it: a status, and the code and message as JSON.
fn error(status: u16, code: &str) -> HttpReply {
    HttpReply::Response {
        status,
        headers: vec![("Content-Type", "application/json".to_owned())],
        body: format!(r#"{{"code":"{code}","message":"why"}}"#).into_bytes(),
    }
}

fn empty(content_type: &str, body: &str) -> HttpReply {
    let headers = vec![("Content-Type", content_type.to_owned())];
    HttpReply::Response { status: 200, headers, body: body.as_bytes().to_vec() }
}

#[test]
fn a_request_is_a_unary_call_of_the_connect_protocol() {
    let server = ScriptedHttp::start(|_, _| empty("application/proto", ""));
    let exporter = exporter_at(server.port());

    exporter.enqueue(0, payload("body", 3));
    assert!(exporter.flush(TEST_TIMEOUT));

    let received = server.received().remove(0);
    assert_eq!(
        (received.method.as_str(), received.target.as_str(), received.body.as_slice()),
        ("POST", PATH, &b"body"[..])
    );
    for (name, value) in [
        ("content-type", Some("application/proto")),
        ("connect-protocol-version", Some("1")),
        ("x-scope-orgid", Some("team")),
        ("content-encoding", None),
        ("otlp-profiles-development-version", None),
    ] {
        assert_eq!(received.header(name), value, "{name}");
    }
    let stats = stats_of(&exporter);
    assert_eq!((stats.kind, stats.sent, stats.sent_samples, stats.last_warning), ("pyroscope", 1, 3, None));
}

#[test]
fn only_temporary_errors_are_retried() {
    let retried = [(429, "resource_exhausted"), (503, "unavailable"), (504, "deadline_exceeded")];
    for (status, code) in retried {
        let server = ScriptedHttp::start(move |number, _| match number {
            0 => error(status, code),
            _ => empty("application/json", "{}"),
        });
        let exporter = exporter_at(server.port());
        exporter.enqueue(0, payload("body", 3));
        let stats = wait_for(&exporter, "it is sent", |stats| stats.sent == 1);
        assert_eq!((stats.retries, stats.last_warning), (1, None), "{status}");
    }
    let permanent =
        [(400, "invalid_argument", "why"), (401, "unauthenticated", "headers"), (404, "unimplemented", "base URL")];
    for (status, code, message) in permanent {
        let server = ScriptedHttp::start(move |_, _| error(status, code));
        let exporter = exporter_at(server.port());
        exporter.enqueue(0, payload("body", 3));
        let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);
        assert_eq!((stats.dropped(DiscardReason::Permanent).samples, server.received().len()), (3, 1), "{status}");
        assert!(stats.last_error.as_ref().unwrap().contains(message), "{stats:#?}");
    }
}

#[test]
fn a_page_of_another_server_is_no_success() {
    let server = ScriptedHttp::start(|_, _| empty("text/html", "<html>"));
    let exporter = exporter_at(server.port());
    exporter.enqueue(0, payload("body", 3));
    let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);
    assert_eq!(stats.dropped(DiscardReason::Permanent).payloads, 1, "{stats:#?}");
}
