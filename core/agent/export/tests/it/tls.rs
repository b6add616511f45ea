//! The TLS matrix over HTTP, gRPC and Pyroscope's push protocol: only trusted servers receive profiles, and nothing is sent in plain text.

use crate::certificates::{write, Authority, TlsIdentity};
use crate::clocks::InstantClock;
use crate::scripted_grpc::{self, ScriptedGrpc};
use crate::scripted_http::{HttpReply, ScriptedHttp};
use crate::shared::{payload, settings_on, wait_for};
use spanprof_export::{Destination, DestinationStats, Exporter, ExporterSettings, OtlpEndpoint, TlsFiles};
use std::time::Duration;
use tempfile::TempDir;

struct ClientTls<'a> {
    trusts: Option<&'a Authority>,
    identity: Option<&'a TlsIdentity>,
}

impl ClientTls<'_> {
    fn files(&self, directory: &TempDir) -> TlsFiles {
        let path = directory.path();
        TlsFiles {
            certificate: self.trusts.map(|authority| write(path, "ca.pem", &authority.pem)),
            client_certificate: self.identity.map(|identity| write(path, "client.pem", &identity.certificate)),
            client_key: self.identity.map(|identity| write(path, "client.key", &identity.key)),
        }
    }
}

/// Sends one payload by each protocol to a server with this certificate; returns the statistics of all.
fn sent_to(server: &TlsIdentity, clients: Option<&Authority>, client: &ClientTls<'_>) -> [DestinationStats; 3] {
    let http = ScriptedHttp::start_with(Some(server.server_config(b"http/1.1", clients)), |_, _| HttpReply::ok());
    let grpc = ScriptedGrpc::start_with(Some(server.server_config(b"h2", clients)), |_, _| {
        scripted_grpc::GrpcReply::Ok(vec![])
    });
    let directory = tempfile::tempdir().unwrap();
    let endpoint = |port: u16| OtlpEndpoint {
        tls: client.files(&directory),
        ..OtlpEndpoint::new(format!("https://localhost:{port}/v1development/profiles"))
    };
    let destinations = [
        Destination::OtlpHttp(endpoint(http.port())),
        Destination::OtlpGrpc(endpoint(grpc.port())),
        Destination::Pyroscope(endpoint(http.port())),
    ];
    let outcomes = destinations.map(|destination| {
        let settings =
            ExporterSettings { retry_max_age: Duration::from_millis(100), ..settings_on(InstantClock::new()) };
        let exporter = Exporter::start(vec![destination], settings).unwrap();
        exporter.enqueue(0, payload("body", 1));
        wait_for(&exporter, "it is settled", |stats| stats.queue_payloads == 0)
    });
    let arrived = [http.received().len() as u64, grpc.received().len() as u64];
    assert_eq!(arrived, [outcomes[0].sent + outcomes[2].sent, outcomes[1].sent], "{outcomes:#?}");
    outcomes
}

#[test]
fn a_server_with_a_certificate_of_the_given_authority_gets_profiles_and_our_certificate_if_it_requires_one() {
    let authority = Authority::new("ours");
    let identity = authority.client("service-a");
    for (clients, identity) in [(None, None), (Some(&authority), Some(&identity))] {
        let client = ClientTls { trusts: Some(&authority), identity };
        for stats in sent_to(&authority.server("localhost"), clients, &client) {
            assert_eq!(stats.sent, 1, "{stats:#?}");
        }
    }
}

#[test]
fn a_server_with_an_unsuitable_certificate_gets_nothing() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let private = "certificate authority (a PEM file) as `certificate`";
    for (server, trusts, reason, remedy) in [
        (theirs.server("localhost"), Some(&ours), "UnknownIssuer", private),
        // Without an authority, the trust anchors of the system count.
        (ours.server("localhost"), None, "UnknownIssuer", private),
        (
            ours.server("other.example"),
            Some(&ours),
            "not valid for name",
            "use a host name of the receiver's certificate",
        ),
        (ours.expired_server("localhost"), Some(&ours), "expired", "renew the receiver's certificate"),
    ] {
        for stats in sent_to(&server, None, &ClientTls { trusts, identity: None }) {
            assert_eq!((stats.sent, stats.dropped_total().payloads), (0, 1), "{stats:#?}");
            let error = stats.last_error.as_ref().unwrap();
            assert!(error.contains(reason) && error.contains(remedy), "`{error}`: expected `{reason}`, `{remedy}`");
        }
    }
}

#[test]
fn a_server_that_requires_a_client_certificate_rejects_a_missing_or_foreign_one() {
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let server = authority.server("localhost");
    let foreign = other.client("service-a");

    for (identity, alert, remedy) in [
        (None, "CertificateRequired", "requires a `client_certificate`"),
        (Some(&foreign), "UnknownCA", "`client_certificate` of an authority that the receiver trusts"),
    ] {
        let outcomes = sent_to(&server, Some(&authority), &ClientTls { trusts: Some(&authority), identity });
        for stats in &outcomes {
            assert_eq!((stats.sent, stats.dropped_total().payloads), (0, 1), "{stats:#?}");
            // With TLS 1.3 the alert follows the handshake; the client may see the end of the connection first.
            let error = stats.last_error.as_ref().unwrap();
            assert!(!error.contains("alert") || error.contains(alert) && error.contains(remedy), "{error}");
        }
    }
}

#[test]
fn an_https_endpoint_is_never_reached_in_plain_text() {
    let server = ScriptedHttp::start(|_, _| HttpReply::ok());
    let endpoint = OtlpEndpoint::new(format!("https://localhost:{}/v1development/profiles", server.port()));
    for destination in [
        Destination::OtlpHttp(endpoint.clone()),
        Destination::Pyroscope(endpoint.clone()),
        Destination::OtlpGrpc(endpoint),
    ] {
        let mut settings = settings_on(InstantClock::new());
        settings.retry_max_age = Duration::from_millis(100);
        let exporter = Exporter::start(vec![destination], settings).unwrap();
        exporter.enqueue(0, payload("body", 1));
        // The plain server may wait for the end of a line, so the client must close the connection.
        exporter.stop(Duration::from_millis(500));
        let stats = exporter.stats().remove(0);
        assert_eq!((stats.sent, stats.dropped_total().payloads), (0, 1), "{stats:#?}");
    }
    assert!(server.received().is_empty());
}
