//! Places a marker in each setting that can hold a secret, provokes each failure, and checks that no output contains it.

use crate::clocks::InstantClock;
use crate::scripted_grpc::{self, ScriptedGrpc};
use crate::scripted_http::{HttpReply, ReceivedPost, RefusingPort, ScriptedHttp};
use crate::shared::{payload, settings_on, wait_for};
use spanprof_export::{Destination, ExportError, Exporter, ExporterSettings, OtlpEndpoint, ProxySettings, Secret};
use std::path::PathBuf;
use std::time::Duration;

const MARKER: &str = "m4rk3r";

/// An endpoint full of secrets: userinfo, query, headers, proxy, key paths.
fn secret_endpoint(scheme: &str, port: u16) -> OtlpEndpoint {
    let mut endpoint = OtlpEndpoint::new(format!("{scheme}://user-{MARKER}:{MARKER}@127.0.0.1:{port}/p?key={MARKER}"));
    endpoint.headers = vec![
        ("authorization".to_owned(), Secret::new(format!("Bearer {MARKER}"))),
        ("x-api-key".to_owned(), Secret::from(MARKER)),
    ];
    endpoint
}

fn assert_unmarked(shown: &str) {
    assert!(!shown.contains(MARKER), "a secret shows: {shown}");
    // The same in base64, as basic authentication carries it.
    assert!(!shown.contains("bTRyazNy"), "a secret shows: {shown}");
}

/// The whole request, as a careless receiver echoes it.
fn echo(received: &ReceivedPost) -> Vec<u8> {
    format!("cannot serve {received:?}").into_bytes()
}

#[test]
fn headers_that_a_receiver_echoes_are_redacted() {
    for status in [200, 302, 400, 401, 404, 413, 429, 500, 503] {
        let server = ScriptedHttp::start(move |_, received| {
            let headers = vec![
                ("Content-Type", "text/plain".to_owned()),
                ("Location", format!("http://{MARKER}:{MARKER}@elsewhere/?q={MARKER}")),
            ];
            HttpReply::Response { status, headers, body: echo(received) }
        });
        assert_nothing_shows(Destination::OtlpHttp(secret_endpoint("http", server.port())));
        assert_nothing_shows(Destination::Pyroscope(secret_endpoint("http", server.port())));
        assert!(server.received()[0].header("x-api-key") == Some(MARKER), "the secret must arrive");
    }
}

#[test]
fn a_token_that_a_grpc_receiver_echoes_is_redacted() {
    for code in [3, 7, 12, 14, 16] {
        let server =
            ScriptedGrpc::start(move |_, _| scripted_grpc::GrpcReply::status(code, "token m4rk3r (Bearer m4rk3r)"));
        assert_nothing_shows(Destination::OtlpGrpc(secret_endpoint("http", server.port())));
        assert_eq!(server.received()[0].metadata["authorization"], format!("Bearer {MARKER}"));
    }
}

#[test]
fn connection_errors_contain_no_secret() {
    let silent = ScriptedHttp::start(|_, _| HttpReply::Silence);
    let resetting = ScriptedHttp::start(|_, _| HttpReply::Reset);
    let refusing = RefusingPort::open();
    for (scheme, port) in
        [("http", refusing.port), ("https", refusing.port), ("http", silent.port()), ("http", resetting.port())]
    {
        let endpoint = OtlpEndpoint { timeout: Duration::from_millis(200), ..secret_endpoint(scheme, port) };
        assert_nothing_shows(Destination::OtlpHttp(endpoint.clone()));
        assert_nothing_shows(Destination::OtlpGrpc(endpoint));
    }
    for scheme in ["http", "https"] {
        let mut endpoint = secret_endpoint(scheme, 1);
        endpoint.url = endpoint.url.replace("127.0.0.1", "collector.invalid");
        let url = format!("http://user-{MARKER}:{MARKER}@127.0.0.1:{}", refusing.port);
        endpoint.proxy = Some(ProxySettings { url, no_proxy: String::new() });
        assert_nothing_shows(Destination::OtlpHttp(endpoint.clone()));
        assert_nothing_shows(Destination::Pyroscope(endpoint.clone()));
        assert_nothing_shows(Destination::OtlpGrpc(endpoint));
    }
}

#[test]
fn errors_at_start_contain_no_secret() {
    let broken: [fn(&mut OtlpEndpoint); 9] = [
        |endpoint| endpoint.url = endpoint.url.replace("https", "ftp"),
        |endpoint| endpoint.url = endpoint.url.replace(":1/", ":99999/"),
        |endpoint| endpoint.url = endpoint.url.replace("/p", "/ p"),
        |endpoint| endpoint.url = MARKER.to_owned() + "@",
        |endpoint| endpoint.headers.push(("bad name".to_owned(), Secret::from(MARKER))),
        |endpoint| endpoint.headers.push(("x".to_owned(), Secret::new(format!("{MARKER}\n") + MARKER))),
        |endpoint| endpoint.proxy = Some(ProxySettings { url: format!("{MARKER}@"), no_proxy: String::new() }),
        |endpoint| endpoint.tls.client_key = Some(PathBuf::from(format!("/{MARKER}/key.pem"))),
        |endpoint| endpoint.tls.certificate = Some(PathBuf::from(format!("/{MARKER}/ca.pem"))),
    ];
    for (number, corrupt) in broken.iter().enumerate() {
        let mut endpoint = secret_endpoint("https", 1);
        corrupt(&mut endpoint);
        for destination in [Destination::OtlpHttp(endpoint.clone()), Destination::OtlpGrpc(endpoint)] {
            assert_unmarked(&format!("{destination:?}"));
            let error: ExportError = Exporter::start(vec![destination], ExporterSettings::default())
                .err()
                .unwrap_or_else(|| panic!("endpoint {number} is not rejected"));
            assert_unmarked(&format!("{error} {error:?}"));
        }
    }
}

fn assert_nothing_shows(destination: Destination) {
    assert_unmarked(&format!("{destination:?} {destination:#?}"));
    let settings = ExporterSettings { retry_max_age: Duration::from_millis(1), ..settings_on(InstantClock::new()) };
    assert_unmarked(&format!("{settings:?}"));
    let exporter = Exporter::start(vec![destination], settings).unwrap();
    let sent = payload(MARKER, 1);
    assert_unmarked(&format!("{sent:?}"));
    exporter.enqueue(0, sent);
    let stats = wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0);
    assert!(stats.last_error.is_some() || stats.last_warning.is_some() || stats.sent == 1, "{stats:#?}");
    assert_unmarked(&format!("{stats:?} {exporter:?}"));
}
