//! Planted texts through every destination of a running profiler: OTLP over HTTP and gRPC, pprof files, the output in each
//! format, the heap at its peak, statistics and log lines.

use super::profiler::start_native;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spanprof::tag_wrapper;
use spanprof_config::{Config, Headers, RedactionRules};
use spanprof_read::decode;

use crate::profiler::{burn, one_at_a_time, without_destination, CapturedLog, TIMEOUT};

/// Part of every planted text. Nothing else contains it.
const MARKER: &str = "q7marker";

/// Secrets of the configuration: a header, the password of a URL, its query.
const SECRETS: [&str; 3] = ["q7-tenant", "q7-password", "q7-query"];

/// Accepts connections and stores every byte that it receives; responds to HTTP/1.1 with 200.
fn receiver(bytes: Arc<Mutex<Vec<u8>>>, responds: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), bytes) = (stream, bytes.clone()) else { return };
            std::thread::spawn(move || {
                let mut chunk = [0; 65_536];
                while let Ok(read @ 1..) = stream.read(&mut chunk) {
                    bytes.lock().unwrap().extend_from_slice(&chunk[..read]);
                    if responds {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                    }
                }
            });
        }
    });
    address
}

/// Number of planted texts in the output of the profiler; fails if it has a secret.
fn count(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} is shown");
    }
    text.matches(MARKER).count()
}

/// The contents of every file below a directory, unpacked where they are gzip or pprof.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    let contents = entries.map(|path| {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Ok((_, data)) = decode::any(&bytes, &decode::DecodeLimits::default()) {
            bytes.extend(format!("{data:?}").into_bytes());
        }
        (path, bytes)
    });
    contents.collect()
}

/// Labels and functions with planted texts, 200 in total.
fn run_marked() {
    let end = Instant::now() + TIMEOUT;
    for number in 0..50 {
        let text = format!("{MARKER}-{number}");
        let labels = [
            ("password".to_owned(), text.clone()),
            ("dsn".to_owned(), format!("postgres://shop:{text}@db/x?token={text}")),
            ("user".to_owned(), text.clone()),
            (format!("internal_{text}"), "x".to_owned()),
        ];
        let labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        tag_wrapper(labels.as_slice(), || burn(Duration::from_millis(4)));
        assert!(Instant::now() < end);
    }
}

#[test]
fn planted_texts_reach_a_file_without_redaction() {
    let _serial = one_at_a_time();
    let directory = std::env::temp_dir().join(format!("spanprof-unredacted-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let output = directory.join("run.pb.gz").to_str().unwrap().to_owned();
    let config = Config { sample_rate: 1000, redaction: false, output: Some(output), ..without_destination() };
    let profiler = start_native(config).unwrap();
    run_marked();
    profiler.stop();
    let found: usize = files(&directory).iter().map(|(_, bytes)| count(bytes)).sum();
    assert!(found > 100, "{found}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn planted_texts_reach_no_destination() {
    let _serial = one_at_a_time();
    let directory = std::env::temp_dir().join(format!("spanprof-redaction-it-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let log = CapturedLog::begin();
    let received = Arc::new(Mutex::new(Vec::new()));
    let http = receiver(received.clone(), true);
    let grpc = receiver(received.clone(), false);
    let rules = "[{where: label_value, key: ^user$, action: hash}, {where: label_key, match: ^internal_, action: drop},
        {where: resource, key: ^owner$}, {where: function, match: burn, with: burned}]";
    for (round, output) in ["run.html", "run.pb.gz", "run.folded"].into_iter().enumerate() {
        let directory = directory.join(output);
        std::fs::create_dir_all(&directory).unwrap();
        let entry = |endpoint: String| {
            let mut entry = spanprof_config::DestinationConfig::new(spanprof_config::DestinationType::Otlp);
            entry.endpoint = Some(endpoint);
            entry.compression = Some(spanprof_config::Compression::Uncompressed);
            entry
        };
        let mut file = spanprof_config::DestinationConfig::new(spanprof_config::DestinationType::File);
        file.directory = Some(directory.to_str().unwrap().to_owned());
        let mut over_grpc = entry(format!("http://{grpc}"));
        over_grpc.protocol = Some(spanprof_config::Protocol::Grpc);
        let mut destinations = vec![entry(format!("http://shop:{}@{http}/?key={}", SECRETS[1], SECRETS[2])), file];
        // Once: this receiver does not respond, and `stop` waits for it.
        if round == 0 {
            destinations.push(over_grpc);
        }
        let attributes = [
            ("owner", MARKER.to_owned()),
            ("deployment.id", format!("https://bot:{MARKER}@ci/42")),
            ("db.password", MARKER.to_owned()),
            ("process.command_line", format!("shop --token {MARKER} --api-key={MARKER}")),
        ];
        let config = Config {
            service_name: "shop".to_owned(),
            resource_attributes: attributes.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
            tags: BTreeMap::from([("auth".to_owned(), format!("Authorization: Bearer {MARKER}-{MARKER}"))]),
            redaction_rules: RedactionRules::parse(rules).unwrap(),
            redaction_hash_key: Some(format!("{MARKER}-key").into()),
            destinations: Some(destinations),
            output: Some(directory.join(output).to_str().unwrap().to_owned()),
            heap_peak_directory: Some(directory.to_str().unwrap().to_owned()),
            sample_rate: 1000,
            headers: Headers::new([("x-tenant".to_owned(), SECRETS[0].to_owned())]),
            stop_timeout: Duration::from_secs(if round == 0 { 6 } else { 60 }),
            ..Config::default()
        };
        assert_eq!(count(format!("{config:?}").as_bytes()), 0, "round {round}");
        let profiler = start_native(config).unwrap();
        run_marked();
        let stats = format!("{:?}", profiler.stats());
        assert_eq!(count(stats.as_bytes()), 0, "round {round}: {stats}");
        profiler.stop();
        let files = files(&directory);
        assert!(files.len() >= 2, "{files:?}");
        for (path, bytes) in &files {
            assert_eq!(count(bytes), 0, "{}", path.display());
        }
        let is_redacted = |(path, bytes): &(PathBuf, Vec<u8>)| {
            path.extension().is_some_and(|it| it == "json") && String::from_utf8_lossy(bytes).contains("[REDACTED]")
        };
        assert!(files.iter().any(is_redacted), "round {round}: the side-car has the redacted deployment");
        let all: Vec<u8> = files.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert!(String::from_utf8_lossy(&all).contains("[REDACTED]"), "round {round}: nothing was redacted");
    }
    let received = received.lock().unwrap();
    let text = String::from_utf8_lossy(&received);
    assert!(text.contains("[REDACTED]") && text.contains("PRI * HTTP/2.0"), "{} bytes received", received.len());
    assert!(text.contains(SECRETS[0]), "the header is sent");
    assert_eq!(text.matches(MARKER).count(), 0);
    assert_eq!(count(log.texts().join("\n").as_bytes()), 0);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn planted_texts_reach_neither_a_pull_nor_a_capture() {
    let _serial = one_at_a_time();
    let rules =
        "[{where: label_value, key: ^user$, action: hash}, {where: label_key, match: ^internal_, action: drop}]";
    let redaction_rules = RedactionRules::parse(rules).unwrap();
    let tags = BTreeMap::from([("auth".to_owned(), format!("Bearer {MARKER}-{MARKER}"))]);
    let profiler =
        start_native(Config { sample_rate: 1000, redaction_rules, tags, ..crate::pull::config(None) }).unwrap();
    let address = crate::pull::address(&profiler);
    let path = "GET /debug/pprof/profile?seconds=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (captured, pulled) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| spanprof::capture(|| (0..4).for_each(|_| run_marked())).1.pprof());
        let (status, _, body) = crate::pull::exchange(&address, path);
        assert_eq!(status, 200);
        (worker.join().unwrap(), body)
    });
    profiler.stop();
    for bytes in [captured, pulled] {
        let (_, data) = decode::any(&bytes, &decode::DecodeLimits::default()).unwrap();
        let text = format!("{data:?}");
        assert!(text.contains("[REDACTED]"), "{text}");
        assert_eq!(count(text.as_bytes()), 0, "{text}");
    }
}
