//! Responses to exporters: every accepted form, every refusal with its status code.

use hyper::Method;

use crate::client::{get, grpc, grpc_body, http, post, EXPORT, PROFILES};
use crate::fixture::{encoded, gzip, number, shop, spanprof, Serve, TestDirectory};

fn received(serve: &Serve) -> i64 {
    number(&get(&serve.http, "/api/stats").text(), "received_requests")
}

#[test]
fn every_documented_form_of_a_request_is_accepted() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let plain = encoded(&shop("checkout"));
    let zipped = gzip(&plain);

    for (headers, body) in [(&[][..], &plain), (&[("content-encoding", "gzip")][..], &zipped)] {
        let response = post(&serve.http, headers, body);
        assert_eq!((response.status, &response.body[..]), (200, &[0x0a, 0x00][..]), "{}", response.text());
        assert_eq!(response.header("content-type"), "application/x-protobuf");
    }
    let file = home.file("in.otlp.pb", &plain);
    let json = spanprof(&["convert", &file, "--to", "json"]).stdout;
    std::fs::remove_file(&file).unwrap();
    let response = post(&serve.http, &[("content-type", "application/json; charset=utf-8")], json.as_bytes());
    assert_eq!((response.status, response.text().as_str()), (200, r#"{"partialSuccess":{}}"#));

    let identity = grpc(&serve.grpc, EXPORT, &[("otlp-profiles-development-version", "1")], &plain, false);
    let gzipped = grpc(&serve.grpc, EXPORT, &[("grpc-encoding", "gzip")], &zipped, true);
    for response in [identity, gzipped] {
        assert_eq!((response.status, response.grpc_status()), (200, "0"), "{response:?}");
        assert_eq!(response.body, [0, 0, 0, 0, 2, 0x0a, 0x00]);
        assert_eq!(response.header("content-type"), "application/grpc");
    }
    // A frequent mistake that the server accepts: the other protocol's port.
    assert_eq!(post(&serve.grpc, &[], &plain).status, 200);
    assert_eq!(grpc(&serve.http, EXPORT, &[], &plain, false).grpc_status(), "0");

    assert_eq!(received(&serve), 7);
    let top = get(&serve.http, "/api/top?type=cpu").text();
    assert_eq!(number(&top, "total"), 7 * 1_000_000_000, "{top}");
}

#[test]
fn a_wrong_http_request_gets_the_status_of_its_error() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &["--max-request-bytes", "100000"]);
    let plain = encoded(&shop("checkout"));
    let status = |headers: &[(&str, &str)], body: &[u8]| post(&serve.http, headers, body).status;

    assert_eq!(status(&[("content-type", "application/protobuf")], &plain), 415);
    assert_eq!(status(&[("content-type", "text/plain")], &plain), 415);
    assert_eq!(status(&[("content-encoding", "zstd")], &plain), 415);
    assert_eq!(status(&[("content-encoding", "gzip")], &plain), 400);
    assert_eq!(status(&[], &gzip(&plain)), 400);
    assert_eq!(status(&[], &plain[..plain.len() - 3]), 400);
    assert_eq!(status(&[], &vec![0; 100_001]), 413);
    assert_eq!(status(&[("content-type", "application/json")], b"{"), 400);
    assert_eq!(status(&[("origin", "http://evil.example")], &plain), 403);

    let get = http(&serve.http, Method::GET, PROFILES, &[], b"");
    assert_eq!((get.status, get.header("allow")), (405, "POST"));
    let wrong_path =
        http(&serve.http, Method::POST, "/v1/profiles", &[("content-type", "application/x-protobuf")], &plain);
    assert_eq!(wrong_path.status, 404);
    assert!(wrong_path.text().contains(PROFILES), "{}", wrong_path.text());
    assert_eq!(received(&serve), 0);
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn a_refusal_carries_an_rpc_status_in_the_format_of_the_request() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let protobuf = post(&serve.http, &[], &[0xff; 9]);
    assert_eq!((protobuf.status, protobuf.header("content-type")), (400, "application/x-protobuf"));
    assert_eq!(&protobuf.body[..3], [0x08, 3, 0x12], "code INVALID_ARGUMENT, then a message");
    assert!(protobuf.text().contains("OTLP"), "{}", protobuf.text());
    let json = post(&serve.http, &[("content-type", "application/json")], b"[]");
    assert_eq!((json.status, json.header("content-type")), (400, "application/json"));
    assert!(json.text().starts_with(r#"{"code":3,"message":""#), "{}", json.text());
}

#[test]
fn only_revision_one_of_the_signal_is_accepted() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let plain = encoded(&shop("checkout"));
    for wrong in ["2", "01", "", "one"] {
        let response = post(&serve.http, &[("otlp-profiles-development-version", wrong)], &plain);
        assert_eq!(response.status, 400, "{wrong:?}");
        assert!(response.text().contains("OTLP-Profiles-Development-Version"), "{}", response.text());
        let response = grpc(&serve.grpc, EXPORT, &[("otlp-profiles-development-version", wrong)], &plain, false);
        assert_eq!(response.grpc_status(), "3", "{wrong:?}");
    }
    let twice = [("otlp-profiles-development-version", "1"), ("otlp-profiles-development-version", "1")];
    assert_eq!(grpc(&serve.grpc, EXPORT, &twice, &plain, false).grpc_status(), "3");
    assert_eq!(received(&serve), 0);
}

#[test]
fn a_wrong_grpc_call_gets_the_code_of_its_error() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &["--max-request-bytes", "100000"]);
    let plain = encoded(&shop("checkout"));
    let zipped = gzip(&plain);
    let traces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

    let unknown = grpc(&serve.grpc, traces, &[], &plain, false);
    assert_eq!((unknown.status, unknown.grpc_status()), (200, "12"));
    assert!(unknown.header("grpc-message").contains("unknown service"), "{unknown:?}");
    assert_eq!(grpc(&serve.grpc, &EXPORT.replace("Export", "Import"), &[], &plain, false).grpc_status(), "12");
    assert_eq!(grpc(&serve.grpc, EXPORT, &[("grpc-encoding", "zstd")], &plain, true).grpc_status(), "12");
    assert_eq!(grpc(&serve.grpc, EXPORT, &[], &zipped, true).grpc_status(), "3");
    assert_eq!(grpc(&serve.grpc, EXPORT, &[("grpc-encoding", "gzip")], &plain, true).grpc_status(), "3");
    assert_eq!(grpc(&serve.grpc, EXPORT, &[], &[0xff; 9], false).grpc_status(), "3");
    assert_eq!(grpc(&serve.grpc, EXPORT, &[], &vec![0; 100_001], false).grpc_status(), "8");
    assert_eq!(grpc_body(&serve.grpc, EXPORT, &[], b"\0\0").grpc_status(), "3");
    assert_eq!(grpc_body(&serve.grpc, EXPORT, &[], b"\0\xff\xff\xff\xff").grpc_status(), "3");
    // Uncompressed messages under a compressed encoding are allowed.
    assert_eq!(grpc(&serve.grpc, EXPORT, &[("grpc-encoding", "gzip")], &plain, false).grpc_status(), "0");
    assert_eq!(received(&serve), 1);
}
