//! pprof and folded stacks by the protocols of Pyroscope's agents: `/ingest` with a body or a form, and push requests.

use hyper::Method;
use spanprof_profile::encode::{pprof, pyroscope};
use spanprof_profile::ProfilesData;

use crate::client::{get, http, post, HttpResponse};
use crate::fixture::{gzip, ids, number, shop, spanprof, window, Serve, TestDirectory, TestSample};

const PUSH: &str = "/push.v1.PusherService/Push";
const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");
const PROTO: (&str, &str) = ("content-type", "application/proto");

fn ingest(serve: &Serve, query: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
    http(&serve.http, Method::POST, &format!("/ingest{query}"), headers, body)
}

/// The shop's profile as another program's: its service and process are not in the file.
fn foreign(service: &str) -> Vec<u8> {
    let mut data = shop(service);
    data.resources[0].resource.clear();
    pprof::encode(&data)
}

/// A form with these fields.
fn form(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in fields {
        body.extend(
            format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n").bytes(),
        );
        body.extend_from_slice(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--limit--\r\n");
    body
}

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=limit");

fn total(serve: &Serve, query: &str) -> i64 {
    let top = get(&serve.http, &format!("/api/top?{query}"));
    assert_eq!(top.status, 200, "{}", top.text());
    number(&top.text(), "total")
}

#[test]
fn a_pprof_body_is_stored_with_the_service_and_the_labels_of_its_name() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let zipped = foreign("a");
    let name = "?name=a%7Bregion%3Deu%7D";
    // As curl's --data-binary sends it.
    let form_type = ("content-type", "application/x-www-form-urlencoded");
    let response = ingest(&serve, name, &[form_type], &zipped);
    assert_eq!(response.status, 200, "{}", response.text());
    for (format, headers) in [("", &[OCTETS][..]), ("pprof", &[OCTETS, ("content-encoding", "gzip")]), ("pprof", &[])] {
        let (from, until) = ("1700000000", "1700000010");
        let query = format!("?name=b&format={format}&from={from}&until={until}&spyName=nodespy&sampleRate=100");
        // One of these forms; the others repeat it.
        assert_eq!(ingest(&serve, &query, headers, &zipped).status, 200);
    }
    assert_eq!(total(&serve, "service=a&type=cpu"), 1_000_000_000);
    assert_eq!(total(&serve, "service=a&type=cpu&label=region%3Deu&label=endpoint%3D/cart"), 700_000_000);
    assert_eq!(total(&serve, "service=b&type=cpu"), 1_000_000_000, "the same profile is received once");
    assert_eq!(number(&get(&serve.http, "/api/stats").text(), "duplicate_profiles"), 2);
    let trace = hex::encode(ids(1).0);
    assert_eq!(total(&serve, &format!("service=a&type=cpu&trace_id={trace}")), 500_000_000);
    let directory = home.path().to_str().unwrap();
    let top = spanprof(&["top", directory, "--service", "a", "--type", "cpu"]);
    assert!(top.code == 0 && top.stdout.contains("price"), "{top:?}");
    let compared = spanprof(&["diff", directory, "--baseline", "a{region=eu}", "--comparison", "b", "--type", "cpu"]);
    assert_eq!(compared.code, 0, "{compared:?}");
}

#[test]
fn a_profile_of_spanprof_needs_no_name() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    assert_eq!(ingest(&serve, "", &[OCTETS], &pprof::encode(&shop("own"))).status, 200);
    assert_eq!(total(&serve, "service=own&type=cpu"), 1_000_000_000);
    let unnamed = ingest(&serve, "", &[OCTETS], &foreign("own"));
    assert_eq!(unnamed.status, 400);
    assert!(unnamed.text().contains("name=SERVICE"), "{}", unnamed.text());
}

#[test]
fn folded_stacks_have_the_type_and_the_time_of_the_request() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let stacks = b"main;serve;cart 30\nmain;serve;pay 20\n";
    let range = "from=1700000000&until=1700000010";
    for (query, body) in [
        (format!("?name=web.cpu%7Bpod%3Da%7D&sampleRate=50&format=folded&{range}"), stacks.to_vec()),
        (format!("?name=worker&units=bytes&format=groups&{range}"), gzip(stacks)),
    ] {
        let response = ingest(&serve, &query, &[], &body);
        assert_eq!(response.status, 200, "{}", response.text());
    }
    assert_eq!(total(&serve, "service=web&type=cpu&label=pod%3Da"), 1_000_000_000);
    assert_eq!(total(&serve, "service=worker&type=alloc_space"), 50);
    assert_eq!(total(&serve, "service=web&type=cpu&from=1700000000&to=1700000011"), 1_000_000_000);
    assert_eq!(total(&serve, "service=web&type=cpu&from=1700000011&to=1700000020"), 0);
}

#[test]
fn a_form_has_the_profile_and_the_names_of_its_types() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let waits = |service: &str| {
        let mut data = window(service, "delay", &[TestSample(&["main", "lock"], 5_000, &[], 0)]);
        data.resources[0].resource.clear();
        pprof::encode(&data)
    };
    let config = br#"{"delay":{"units":"lock_nanoseconds","display-name":"mutex_duration","aggregation":"sum"}}"#;
    let body = form(&[("sample_type_config", config), ("profile", &waits("go"))]);
    let response = ingest(&serve, "?name=go&spyName=gospy", &[FORM], &body);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(ingest(&serve, "?name=go", &[FORM], &form(&[("profile", &waits("block"))])).status, 200);
    assert_eq!((total(&serve, "type=mutex_delay"), total(&serve, "type=delay")), (5_000, 5_000));

    for (fields, status, reason) in [
        (&[("other", &b"x"[..])][..], 400, "the field `profile`"),
        (&[("profile", b"not pprof")], 400, "pprof profile"),
        (&[("profile", b"x"), ("sample_type_config", b"[1]")], 400, "sample_type_config"),
        (&[("profile", b"x"), ("sample_type_config", br#"{"a":{"cumulative":true}}"#)], 415, "cumulative"),
        (&[("profile", b"x"), ("prev_profile", b"x")], 415, "since the start"),
        (&[("jfr", b"x")], 415, "pprof (format=pprof)"),
    ] {
        let refused = ingest(&serve, "?name=go", &[FORM], &form(fields));
        assert_eq!(refused.status, status, "{fields:?}: {}", refused.text());
        assert!(refused.text().contains(reason), "{}", refused.text());
    }
    let cut = form(&[("profile", &waits("go"))]);
    assert_eq!(ingest(&serve, "?name=go", &[FORM], &cut[..cut.len() - 30]).status, 400);
}

#[test]
fn a_push_request_has_a_profile_for_each_series() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let request = |data: ProfilesData| pyroscope::encode(data, 1 << 20).remove(0).body;
    let first = request(shop("pushed"));
    let push = |headers: &[(&str, &str)], body: &[u8]| http(&serve.http, Method::POST, PUSH, headers, body);
    let response = push(&[PROTO], &first);
    assert_eq!((response.status, response.header("content-type"), response.body.len()), (200, "application/proto", 0));
    assert_eq!(push(&[PROTO, ("content-encoding", "gzip")], &gzip(&first)).status, 200, "a repeated request");
    // Messages of protobuf are concatenated.
    let both = [request(shop("third")), request(shop("second"))].concat();
    assert_eq!(push(&[PROTO], &both).status, 200);
    for service in ["pushed", "second", "third"] {
        assert_eq!(total(&serve, &format!("service={service}&type=cpu&label=endpoint%3D/cart")), 700_000_000);
    }

    let json = push(&[("content-type", "application/json")], b"{}");
    assert!(json.status == 415 && json.text().contains("application/proto"), "{}", json.text());
    let invalid = push(&[PROTO], &[0xff; 9]);
    assert_eq!((invalid.status, invalid.header("content-type")), (400, "application/json"));
    assert!(invalid.text().starts_with(r#"{"code":"invalid_argument","message":"cannot read push request"#));
    assert_eq!(http(&serve.http, Method::GET, PUSH, &[], b"").status, 405);
}

#[test]
fn unsupported_formats_are_refused_with_the_accepted_ones() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &["--max-request-bytes", "100000"]);
    let profile = foreign("a");
    for format in ["jfr", "trie", "tree", "lines", "speedscope"] {
        let refused = ingest(&serve, &format!("?name=a&format={format}"), &[], &profile);
        assert_eq!(refused.status, 415, "{format}");
        let text = refused.text();
        assert!(text.contains("pprof (format=pprof) or folded stacks") && text.contains(format), "{text}");
    }
    let query = "?name=a";
    assert_eq!(ingest(&serve, query, &[("content-encoding", "zstd")], &profile).status, 415);
    assert_eq!(ingest(&serve, query, &[], &crate::fixture::encoded(&shop("a"))).status, 415, "OTLP");
    assert_eq!(ingest(&serve, query, &[], &vec![0; 100_001]).status, 413);
    for query in ["?name=a{b", "?name=a&from=then", "?name=a&sampleRate=fast", "?name=a.b&format=folded&units=hours"] {
        assert_eq!(ingest(&serve, query, &[], b"main 1\n").status, 400, "{query}");
    }
    assert_eq!(ingest(&serve, "?name=a", &[("origin", "http://evil.example")], &profile).status, 403);
    assert_eq!(http(&serve.http, Method::GET, "/ingest", &[], b"").header("allow"), "POST");
    let wrong_path = post(&serve.http, &[OCTETS], &profile);
    assert!(wrong_path.status == 415 && wrong_path.text().contains("/ingest?name=SERVICE"), "{}", wrong_path.text());
    assert!(home.names().is_empty(), "{:?}", home.names());
    let stats = get(&serve.http, "/api/stats").text();
    assert_eq!((number(&stats, "refused_invalid"), number(&stats, "refused_too_large")), (11, 1), "{stats}");
}

#[test]
fn profiles_cut_anywhere_and_bombs_are_refused() {
    let home = TestDirectory::new();
    let serve = Serve::start(home.path(), &[]);
    let profile = foreign("a");
    let push = pyroscope::encode(shop("a"), 1 << 20).remove(0).body;
    let form = form(&[("profile", &profile)]);
    for step in 0..40 {
        for (path, content_type, whole) in
            [("/ingest?name=a", OCTETS, &profile), (PUSH, PROTO, &push), ("/ingest?name=a", FORM, &form)]
        {
            let at = whole.len() * step / 40;
            assert_ne!(http(&serve.http, Method::POST, path, &[content_type], &whole[..at]).status, 500, "cut at {at}");
            let mut flipped = whole.clone();
            flipped[at] ^= 0xff;
            let status = http(&serve.http, Method::POST, path, &[content_type], &flipped).status;
            assert!([200, 400, 415].contains(&status), "{status}: flipped at {at}");
        }
    }
    let bomb = gzip(&vec![0u8; 32 << 20]).repeat(4);
    assert_eq!(ingest(&serve, "?name=a&format=folded", &[], &bomb).status, 400);
    assert_eq!(get(&serve.http, "/api/stats").status, 200);
}
