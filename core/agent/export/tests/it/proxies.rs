//! Proxies: plain HTTP uses the absolute form, TLS and gRPC tunnel, and the receiver never gets the proxy's password.

use crate::certificates::{write, Authority};
use crate::scripted_grpc::{self, ScriptedGrpc};
use crate::scripted_http::{HttpReply, ScriptedHttp};
use crate::shared::{exporter_to, payload, stats_of, wait_for, TEST_TIMEOUT};
use spanprof_export::{Destination, OtlpEndpoint, ProxySettings};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A proxy that tunnels every CONNECT request to `to`.
struct TunnelProxy {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TunnelProxy {
    fn start(to: u16, response: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                let head: Vec<_> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                recorded.lock().unwrap().push(head.join("\n"));
                (&client).write_all(response.as_bytes()).unwrap();
                if !response.contains("200") {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server.try_clone().unwrap(), client.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
            }
        });
        Self { port, requests }
    }

    fn settings(&self) -> ProxySettings {
        ProxySettings { url: format!("http://user:pass@127.0.0.1:{}", self.port), no_proxy: String::new() }
    }
}

const CONNECTED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[test]
fn plain_http_sends_the_absolute_form_to_the_proxy() {
    let proxy = ScriptedHttp::start(|_, _| HttpReply::ok());
    let mut endpoint = OtlpEndpoint::new("http://collector.test:4318/v1development/profiles");
    let url = format!("http://user:pass@127.0.0.1:{}", proxy.port());
    endpoint.proxy = Some(ProxySettings { url, no_proxy: String::new() });
    let (exporter, _) = exporter_to(Destination::OtlpHttp(endpoint));

    exporter.enqueue(0, payload("body", 1));
    assert!(exporter.flush(TEST_TIMEOUT));

    let received = proxy.received().remove(0);
    assert_eq!(received.target, "http://collector.test:4318/v1development/profiles");
    assert_eq!(received.header("host"), Some("collector.test:4318"));
    assert_eq!(received.header("proxy-authorization"), Some("Basic dXNlcjpwYXNz"));
}

#[test]
fn https_tunnels_through_the_proxy_and_the_receiver_never_gets_its_password() {
    https_tunnels(Destination::OtlpHttp);
    https_tunnels(Destination::Pyroscope);
}

fn https_tunnels(destination: fn(OtlpEndpoint) -> Destination) {
    let authority = Authority::new("ours");
    let config = authority.server("collector.test").server_config(b"http/1.1", None);
    let server = ScriptedHttp::start_with(Some(config), |_, _| HttpReply::ok());
    let proxy = TunnelProxy::start(server.port(), CONNECTED);
    let directory = tempfile::tempdir().unwrap();
    let mut endpoint = OtlpEndpoint::new("https://collector.test/v1development/profiles");
    endpoint.tls.certificate = Some(write(directory.path(), "ca.pem", &authority.pem));
    endpoint.proxy = Some(proxy.settings());
    let (exporter, _) = exporter_to(destination(endpoint));

    exporter.enqueue(0, payload("body", 1));
    assert!(exporter.flush(TEST_TIMEOUT), "{:?}", stats_of(&exporter));

    let received = server.received().remove(0);
    assert_eq!(
        (received.target.as_str(), received.header("host")),
        ("/v1development/profiles", Some("collector.test"))
    );
    assert_eq!(received.header("proxy-authorization"), None);
    let request = proxy.requests.lock().unwrap()[0].to_ascii_lowercase();
    assert!(request.starts_with("connect collector.test:443 http/1.1"), "{request}");
    assert!(request.contains("proxy-authorization: basic "), "{request}");
}

#[test]
fn grpc_tunnels_through_the_proxy() {
    let server = ScriptedGrpc::start(|_, _| scripted_grpc::GrpcReply::Ok(vec![]));
    let proxy = TunnelProxy::start(server.port(), CONNECTED);
    let mut endpoint = OtlpEndpoint::new("http://collector.test:4317");
    endpoint.proxy = Some(proxy.settings());
    let (exporter, _) = exporter_to(Destination::OtlpGrpc(endpoint));

    exporter.enqueue(0, payload("body", 1));
    assert!(exporter.flush(TEST_TIMEOUT), "{:?}", stats_of(&exporter));

    assert_eq!(server.bodies(), [b"body"]);
}

/// The destination of each protocol, behind the proxy.
fn behind_proxy(url: &str, proxy: &ProxySettings) -> [Destination; 3] {
    let endpoint = OtlpEndpoint { proxy: Some(proxy.clone()), ..OtlpEndpoint::new(url) };
    [Destination::OtlpHttp(endpoint.clone()), Destination::Pyroscope(endpoint.clone()), Destination::OtlpGrpc(endpoint)]
}

/// Sends a payload; returns everything that is shown about its failure.
fn shown_failure(destination: Destination) -> String {
    let mut shown = format!("{destination:?} ");
    let (exporter, _) = exporter_to(destination);
    exporter.enqueue(0, payload("body", 1));
    let stats = wait_for(&exporter, "it failed", |stats| stats.last_error.is_some());
    shown += &format!("{stats:?} {exporter:?}");
    shown
}

fn assert_omits_credentials(shown: &str) {
    assert!(!shown.contains("pass@") && !shown.contains("dXNlcjpwYXNz"), "{shown}");
}

#[test]
fn a_refused_tunnel_names_the_proxy_and_the_way_out_and_no_password() {
    let proxy = TunnelProxy::start(0, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    for destination in behind_proxy("https://collector.test", &proxy.settings()) {
        let shown = shown_failure(destination);
        assert!(shown.contains(&format!("the proxy http://127.0.0.1:{} opened no tunnel", proxy.port)), "{shown}");
        assert!(shown.contains("407") && shown.contains("user and password in its URL"), "{shown}");
        assert_omits_credentials(&shown);
    }
    let requests = proxy.requests.lock().unwrap();
    // An exporter that ends during a second attempt closes its connection without a request.
    let complete: Vec<_> = requests.iter().filter(|request| !request.is_empty()).collect();
    assert!(complete.len() >= 3);
    for request in complete {
        assert!(request.to_ascii_lowercase().contains("proxy-authorization: basic dxnlcjpwyxnz"), "{request}");
    }
}

#[test]
fn a_proxy_that_refuses_a_request_in_plain_http_may_quote_it() {
    let proxy = ScriptedHttp::start(|_, received| HttpReply::Response {
        status: 407,
        headers: vec![("Content-Type", "text/plain".to_owned())],
        body: format!("not served: {received:?}").into_bytes(),
    });
    let url = format!("http://user:pass@127.0.0.1:{}", proxy.port());
    let settings = ProxySettings { url, no_proxy: String::new() };
    let [http, pyroscope, _] = behind_proxy("http://collector.test:4318/v1development/profiles", &settings);
    for destination in [http, pyroscope] {
        let shown = shown_failure(destination);
        assert!(shown.contains("407") && shown.contains("user and password in its URL"), "{shown}");
        assert_omits_credentials(&shown);
    }
    assert_eq!(proxy.received()[1].header("proxy-authorization"), Some("Basic dXNlcjpwYXNz"));
}
