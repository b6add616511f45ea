//! Object storage as a source, an output and a destination, with a scripted server of Amazon's protocol over real sockets.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use spanprof_profile::encode::pprof;

use crate::fixture::{command, shop, Finished, TestDirectory};

const SECRET: &str = "marker-of-the-secret-key";
const OLD: &str = "Wed, 01 Jan 2020 00:00:00 GMT";
const FOLDED: &str = "main;work;inner 30\nmain;work 10\n";

/// An object, and when it was written.
#[derive(Clone)]
struct StoredObject {
    body: Vec<u8>,
    content_type: String,
    modified: &'static str,
}

#[derive(Default)]
struct StorageState {
    objects: BTreeMap<String, StoredObject>,
    /// `PUT /bucket/key`, without the query.
    requests: Vec<String>,
    heads: Vec<String>,
    connections: usize,
    /// Responses 503 before the first other one.
    busy: usize,
}

/// A server of one bucket `b`.
struct ScriptedStorage {
    url: String,
    state: Arc<Mutex<StorageState>>,
}

impl ScriptedStorage {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<StorageState>> = Arc::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                state.lock().unwrap().connections += 1;
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { url, state }
    }

    /// Runs a verb with the credentials of this server.
    fn spanprof(&self, arguments: &[&str]) -> Finished {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(!stdout.contains(SECRET) && !stderr.contains(SECRET), "{stdout}{stderr}");
        Finished { code: output.status.code().expect("an exit code, not a signal"), stdout, stderr }
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = command(arguments);
        for name in
            ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "AWS_CA_BUNDLE", "SSL_CERT_FILE"]
        {
            command.env_remove(name);
        }
        command
            .env("AWS_ENDPOINT_URL", &self.url)
            .env("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_SESSION_TOKEN", format!("{SECRET}-token"))
            .env("AWS_REGION", "eu-west-1");
        command
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> String {
        let finished = self.spanprof(arguments);
        assert_eq!(finished.code, 0, "{}", finished.stderr);
        finished.stdout
    }

    fn state(&self) -> std::sync::MutexGuard<'_, StorageState> {
        self.state.lock().unwrap()
    }

    fn keys(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    fn count(&self, start: &str) -> usize {
        self.state().requests.iter().filter(|request| request.starts_with(start)).count()
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<StorageState>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let header = |name: &str| {
            head.lines()
                .find_map(|line| line.split_once(':').filter(|(it, _)| it.eq_ignore_ascii_case(name)))
                .map(|(_, value)| value.trim().to_owned())
        };
        let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        let mut words = head.split_whitespace();
        let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut state = state.lock().unwrap();
        state.requests.push(format!("{method} {path}"));
        state.heads.push(head.clone());
        let (status, kind, modified, body) = if state.busy > 0 {
            state.busy -= 1;
            (503, "text/xml".to_owned(), "", b"<Error><Code>SlowDown</Code></Error>".to_vec())
        } else {
            let object = StoredObject {
                body,
                content_type: header("content-type").unwrap_or_default(),
                modified: "Sun, 24 Nov 2120 12:00:00 GMT",
            };
            respond(&mut state, &method, path, query, object)
        };
        drop(state);
        let length = body.len();
        let sent = if method == "HEAD" { Vec::new() } else { body };
        let _ = write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nContent-Type: {kind}\r\nETag: \"1\"\r\nLast-Modified: {modified}\r\n\r\n"
        );
        let _ = stream.write_all(&sent);
    }
}

fn respond(
    state: &mut StorageState,
    method: &str,
    path: &str,
    query: &str,
    sent: StoredObject,
) -> (u16, String, &'static str, Vec<u8>) {
    let xml = |status: u16, text: String| (status, "text/xml".to_owned(), "", text.into_bytes());
    let error = |status: u16, code: &str| {
        xml(status, format!("<Error><Code>{code}</Code><Message>A text.</Message><Echo>{SECRET}</Echo></Error>"))
    };
    let key = match path.strip_prefix("/b") {
        Some(rest) => rest.trim_start_matches('/').to_owned(),
        None if path.starts_with("/denied") => return error(403, "AccessDenied"),
        None => return error(404, "NoSuchBucket"),
    };
    match (method, key.as_str()) {
        ("PUT", _) => {
            state.objects.insert(key, sent);
            xml(200, String::new())
        }
        ("GET", "") => {
            let prefix =
                query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or("").replace("%2F", "/");
            let contents: String = state
                .objects
                .iter()
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(key, object)| {
                    let modified = if object.modified == OLD { "2020-01-01T00:00:00.000Z" } else { "2120-11-24T12:00:00.000Z" };
                    format!("<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>1</ETag><Size>{}</Size></Contents>", object.body.len())
                })
                .collect();
            xml(
                200,
                format!(
                    "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
                ),
            )
        }
        _ => match state.objects.get(&key) {
            Some(object) => (200, object.content_type.clone(), object.modified, object.body.clone()),
            None => error(404, "NoSuchKey"),
        },
    }
}

#[test]
fn verbs_write_objects_and_read_objects_and_prefixes() {
    let storage = ScriptedStorage::start();
    let directory = TestDirectory::new();
    let folded = directory.file("a.folded", FOLDED.as_bytes());
    for output in
        ["s3://b/shop/cpu-1.pb.gz", "s3://b/shop/host-2/cpu-2.pb.gz", "s3://b/shopping/cpu-3.pb.gz", "s3://b/cpu.html"]
    {
        storage.succeeds(&["convert", &folded, "-o", output]);
    }
    assert_eq!(storage.state().objects["cpu.html"].content_type, "text/html; charset=utf-8");
    assert!(storage
        .state()
        .heads
        .iter()
        .all(|head| head.contains("AWS4-HMAC-SHA256") && head.contains("/eu-west-1/s3/")));

    let total = |source: &str| {
        let answer: serde_json::Value = serde_json::from_str(&storage.succeeds(&["top", source, "--json"])).unwrap();
        answer["total"].as_i64().unwrap()
    };
    assert_eq!(total("s3://b/shop/cpu-1.pb.gz"), 40);
    assert_eq!(total("s3://b/shop/"), 80, "all objects below the prefix, and none beside it");
    assert_eq!(total("s3://b/shop"), 80);
    assert_eq!(total("s3://b"), 120);
    storage.succeeds(&["merge", "s3://b/shop/", &folded, "-o", "s3://b/merged.otlp.pb.gz"]);
    assert_eq!(total("s3://b/merged.otlp.pb.gz"), 120);
    let compared = storage.succeeds(&["diff", "s3://b/shop/cpu-1.pb.gz", "s3://b/merged.otlp.pb.gz", "--all"]);
    assert!(compared.contains("40 → 120"), "{compared}");
}

#[test]
fn objects_older_than_the_time_range_are_not_downloaded() {
    let storage = ScriptedStorage::start();
    let directory = TestDirectory::new();
    let recent = pprof::encode(&shop("checkout"));
    for name in ["cpu-1.pb.gz", "cpu-2.pb.gz"] {
        directory.file(name, &recent);
    }
    storage.succeeds(&["upload", directory.path().to_str().unwrap(), "s3://b/p"]);
    storage.state().objects.get_mut("p/cpu-1.pb.gz").unwrap().modified = OLD;
    // Also when no sample passes, where the whole source would be listed.
    for service in ["checkout", "absent"] {
        storage.state().requests.clear();
        storage.spanprof(&["top", "s3://b/p/", "--from", "-1h", "--service", service]);
        assert_eq!(storage.count("GET /b/p/cpu-1.pb.gz"), 0, "{service}");
        assert!(storage.count("GET /b/p/cpu-2.pb.gz") > 0, "{service}");
    }
}

#[test]
fn an_upload_copies_profiles_and_side_cars_once_and_replaces_nothing() {
    let storage = ScriptedStorage::start();
    let directory = TestDirectory::new();
    for number in 0..40 {
        directory.file(&format!("cpu-{number}.pb.gz"), FOLDED.as_bytes());
    }
    directory.file("cpu-0.json", b"{}");
    directory.file("notes.md", b"x");
    directory.file(".spanprof-1.pb.gz", b"x");
    let upload = || storage.spanprof(&["upload", directory.path().to_str().unwrap(), "s3://b/host-1/", "--json"]);
    let counts = |finished: &Finished| {
        let answer: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        ["uploaded", "present", "failed"].map(|name| answer[name].as_u64().unwrap())
    };
    assert_eq!(counts(&upload()), [41, 0, 0]);
    assert!(storage.state().connections < 41, "connections are reused");
    assert!(storage.keys().contains(&"host-1/cpu-0.json".to_owned()) && storage.keys().len() == 41);
    assert_eq!(counts(&upload()), [0, 41, 0]);

    directory.file("cpu-7.pb.gz", b"of another writer");
    let refused = upload();
    assert_eq!((refused.code, counts(&refused)), (1, [0, 40, 1]));
    assert!(
        refused
            .stderr
            .contains("s3://b/host-1/cpu-7.pb.gz has 32 bytes and the file 17; give each writer its own prefix"),
        "{}",
        refused.stderr
    );
    assert_eq!(storage.state().objects["host-1/cpu-7.pb.gz"].body, FOLDED.as_bytes());
    assert_eq!(directory.names().len(), 43);
}

#[test]
fn a_failure_names_its_cause_and_no_secret() {
    let storage = ScriptedStorage::start();
    let directory = TestDirectory::new();
    let folded = directory.file("a.folded", FOLDED.as_bytes());
    for (arguments, expected) in [
        (vec!["top", "s3://denied/x.pb.gz"], "cannot read s3://denied/x.pb.gz: "),
        (
            vec!["convert", &folded, "-o", "s3://denied/x.pb.gz"],
            "cannot write s3://denied/x.pb.gz: AccessDenied: A text.",
        ),
        (vec!["convert", &folded, "--to", "pprof", "-o", "s3://b/x/"], "`s3://b/x/` is a prefix"),
        (vec!["top", "s3://absent/x/"], "cannot list s3://absent/x/: NoSuchBucket: A text."),
        (vec!["top", "s3://b/x.pb.gz"], "no profiles in s3://b/x.pb.gz"),
        (vec!["upload", "/nonexistent", "s3://b/x"], "cannot list /nonexistent"),
        (vec!["upload", directory.path().to_str().unwrap(), "/tmp"], "is not the URL of object storage"),
    ] {
        let finished = storage.spanprof(&arguments);
        assert!(finished.code != 0 && finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
        assert!(finished.stderr.lines().count() == 2, "a cause and a way out: {}", finished.stderr);
    }
    let invalid = storage.command(&["top", "s3://b/x/"]).env("AWS_ENDPOINT_URL", "localhost").output().unwrap();
    assert_eq!(invalid.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&invalid.stderr).contains("AWS_ENDPOINT_URL cannot be used"), "{invalid:?}");
    let unreachable =
        storage.command(&["top", "s3://b/x/"]).env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").output().unwrap();
    let text = String::from_utf8_lossy(&unreachable.stderr).into_owned();
    assert!(
        text.contains("cannot connect to http://127.0.0.1:1: Connection refused") && text.contains("AWS_ENDPOINT_URL"),
        "{text}"
    );
}

#[test]
fn a_request_to_a_busy_storage_is_repeated() {
    let storage = ScriptedStorage::start();
    let directory = TestDirectory::new();
    let folded = directory.file("a.folded", FOLDED.as_bytes());
    storage.state().busy = 2;
    storage.succeeds(&["convert", &folded, "-o", "s3://b/cpu.pb.gz"]);
    assert_eq!(storage.count("PUT /b/cpu.pb.gz"), 3);
}

#[test]
fn scraped_profiles_are_objects_below_a_prefix() {
    let storage = ScriptedStorage::start();
    let directory = TestDirectory::new();
    let folded = directory.file("a.folded", FOLDED.as_bytes());
    storage.succeeds(&["convert", &folded, "-o", "s3://b/debug/pprof/profile.pb.gz"]);
    let config = directory.file(
        "scrape.yaml",
        format!(
            "targets: [{{url: '{}', profiles: [{{name: cpu, path: /b/debug/pprof/profile.pb.gz, seconds: 1}}], interval: 2s}}]\n\
             destinations: [{{type: object_storage, url: 's3://b/scraped/checkout'}}]",
            storage.url
        )
        .as_bytes(),
    );
    let answer: serde_json::Value =
        serde_json::from_str(&storage.succeeds(&["scrape", "--config", &config, "--once", "--json"])).unwrap();
    let destination = &answer["destinations"][0];
    assert_eq!(
        (destination["type"].as_str(), destination["sent"].as_u64()),
        (Some("object_storage"), Some(1)),
        "{answer}"
    );
    let keys: Vec<_> = storage.keys().into_iter().filter(|key| key.starts_with("scraped/checkout/cpu-")).collect();
    assert!(keys.len() == 1 && keys[0].ends_with(".pb.gz"), "{keys:?}");
    assert!(storage.succeeds(&["top", "s3://b/scraped/"]).contains("inner"));
}
