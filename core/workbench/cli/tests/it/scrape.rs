//! `spanprof scrape` as a process: targets over real sockets, a real `serve` and real files as destinations.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spanprof_profile::encode::pprof;
use spanprof_profile::{
    Dictionary, Function, Line, Location, Profile, ProfilesData, ResourceProfiles, Sample, Scope, ValueType,
};

use crate::fixture::{command, now_ns, spanprof, Serve, TestDirectory};

/// Far beyond any wait of these tests on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response: status and body.
type ScriptedResponse = (u16, Vec<u8>);

/// A target that responds by a script and records the head of each request.
struct ScriptedTarget {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ScriptedTarget {
    fn start(script: impl Fn(&str) -> ScriptedResponse + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (recorded, script) = (requests.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (recorded, script) = (recorded.clone(), script.clone());
                std::thread::spawn(move || respond(stream, &recorded, &*script));
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn respond(mut stream: TcpStream, recorded: &Mutex<Vec<String>>, script: &dyn Fn(&str) -> ScriptedResponse) {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    recorded.lock().unwrap().push(head.clone());
    let (status, body) = script(head.split_whitespace().nth(1).unwrap_or(""));
    let _ = write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(&body);
}

/// A profile with one function; `duration_s` of 0 makes it a total.
fn profile(kind: &str, unit: &str, value: i64, duration_s: u64) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let name = dictionary.string("work");
    let function = dictionary.function(Function { name, ..Function::default() });
    let lines = [Line { function, ..Line::default() }];
    let location = dictionary.location(Location { lines: &lines, ..Location::default() });
    let stack = dictionary.stack(&[location]);
    let profile = Profile {
        sample_type: ValueType::new(kind, unit),
        time_unix_nano: now_ns() - duration_s * 1_000_000_000,
        duration_nano: duration_s * 1_000_000_000,
        samples: vec![Sample { stack, values: vec![value], ..Sample::default() }],
        ..Profile::default()
    };
    let resources = vec![ResourceProfiles {
        resource: Vec::new(),
        scope: Scope::default(),
        profiles: vec![profile],
        ..ResourceProfiles::default()
    }];
    pprof::encode(&ProfilesData { dictionary, resources })
}

fn cpu() -> ScriptedResponse {
    (200, profile("cpu", "nanoseconds", 1_000_000, 1))
}

/// A running `spanprof scrape`, killed on drop. Lines of standard error are read in the background.
struct Scrape {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Scrape {
    fn start(config: &str) -> Self {
        let mut child = command(&["scrape", "--config", config, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, stderr) = (Arc::new(Mutex::new(Vec::new())), BufReader::new(child.stderr.take().unwrap()));
        let written = lines.clone();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| written.lock().unwrap().push(line))
        });
        Self { child, lines }
    }

    fn count(&self, text: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }

    /// Ends it by SIGTERM; returns the exit code and the JSON.
    fn terminate(mut self) -> (i32, serde_json::Value) {
        let process = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        let code = self.child.wait().unwrap().code().expect("an exit code, not a signal");
        (code, serde_json::from_str(&stdout).expect(&stdout))
    }
}

impl Drop for Scrape {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The total of `type_name` in a directory or at a server.
fn total(source: &str, type_name: &str) -> i64 {
    let found = spanprof(&["top", source, "--type", type_name, "--json", "--limit", "0"]);
    assert_eq!(found.code, 0, "{found:?}");
    serde_json::from_str::<serde_json::Value>(&found.stdout).unwrap()["total"].as_i64().expect(&found.stdout)
}

#[test]
fn one_pull_of_each_profile_arrives_in_files_and_at_a_receiver() {
    let directory = TestDirectory::new();
    let store = directory.path().join("store");
    let serve = Serve::start(&store, &[]);
    let allocated = Arc::new(AtomicI64::new(1000));
    let target = ScriptedTarget::start(move |path| match path {
        "/debug/pprof/profile?seconds=1" => cpu(),
        "/debug/pprof/heap" => (200, profile("alloc_space", "bytes", allocated.fetch_add(77, Ordering::Relaxed), 0)),
        _ => (404, b"no such profile".to_vec()),
    });
    let token = directory.file("token", b"secret-token\n");
    let files = directory.path().join("files");
    let config = directory.file(
        "scrape.yaml",
        format!(
            "targets:\n- url: http://{}\n  bearer_token: {{file: {token}}}\n  attributes: {{service.name: shop}}\n  \
             profiles: [{{name: cpu, seconds: 1}}, heap]\n\
             destinations:\n- directory: {}\n- endpoint: http://{}\n",
            target.address,
            files.display(),
            serve.http
        )
        .as_bytes(),
    );
    let checked = spanprof(&["scrape", "--config", &config, "--check"]);
    assert_eq!((checked.code, files.exists(), target.requests().len()), (0, false, 0), "{checked:?}");

    let done = spanprof(&["scrape", "--config", &config, "--once", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    for source in [files.to_str().unwrap(), &format!("http://{}", serve.http)] {
        assert_eq!(total(source, "cpu"), 1_000_000);
        assert_eq!(total(source, "alloc_space"), 77, "the difference of the two totals");
    }
    let requests = target.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert!(requests.iter().all(|head| head.to_lowercase().contains("authorization: bearer secret-token\r\n")));
    assert!(!done.stdout.contains("secret-token") && !done.stderr.contains("secret-token"));
    let status: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(status["targets"][0]["profiles"][1]["pulled"], 2);
    assert_eq!(status["destinations"][1]["type"], "otlp_http");
    let check = spanprof(&["check", &format!("http://{}", serve.http), "--strict"]);
    assert_eq!(check.code, 0, "{check:?}");
}

#[test]
fn a_failed_pull_fails_the_single_run_and_the_others_are_delivered() {
    let directory = TestDirectory::new();
    let target = ScriptedTarget::start(|path| match path {
        "/debug/pprof/heap" => (200, vec![b'x'; 5000]),
        "/debug/pprof/block" => (403, b"wrong token: hidden-marker".to_vec()),
        "/debug/pprof/mutex" => (200, b"<html>".to_vec()),
        _ => cpu(),
    });
    let files = directory.path().join("files");
    let config = directory.file(
        "scrape.yaml",
        format!(
            "max_body_size: 4KiB\ntargets:\n- url: http://{}\n  headers: {{x-key: hidden-marker}}\n  \
             profiles: [{{name: cpu, seconds: 1}}, heap, block, mutex]\ndestinations: [{{directory: {}}}]\n",
            target.address,
            files.display()
        )
        .as_bytes(),
    );
    let done = spanprof(&["scrape", "--config", &config, "--once"]);
    assert_eq!(done.code, 1, "{done:?}");
    for expected in [
        "heap fails: the profile is larger than max_body_size, 4096 bytes",
        "block fails: status 403 Forbidden: wrong token: ***",
        "mutex fails: ",
        "1 profiles pulled, 3 pulls failed",
    ] {
        assert!(done.stderr.contains(expected), "{expected}: {}", done.stderr);
    }
    assert_eq!(total(files.to_str().unwrap(), "cpu"), 1_000_000);
}

#[test]
fn an_unreachable_target_is_reported_once_and_delays_no_other() {
    let directory = TestDirectory::new();
    // Accepts connections into its backlog and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    // Bound without listening: connections are refused, and no other process gets the port.
    let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    bound.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let unused = bound.local_addr().unwrap().as_socket().unwrap();
    let target = ScriptedTarget::start(|_| cpu());
    let files = directory.path().join("files");
    let config = directory.file(
        "scrape.yaml",
        format!(
            "interval: 1s\ntimeout: 100s\nprofiles: [{{name: cpu, seconds: 1}}]\n\
             targets: ['{silent_address}', '{unused}', '{}']\ndestinations: [{{directory: {}}}]\n",
            target.address,
            files.display()
        )
        .as_bytes(),
    );
    let scrape = Scrape::start(&config);
    wait_until("pulls beside a silent target", || target.requests().len() >= 3);
    wait_until("a report", || scrape.count("is unreachable: cannot connect") >= 1);
    assert_eq!(scrape.count(&format!("{unused} is unreachable")), 1);

    bound.listen(16).unwrap();
    let revived = TcpListener::from(bound);
    std::thread::spawn(move || {
        let recorded = Mutex::default();
        revived.incoming().flatten().for_each(|stream| respond(stream, &recorded, &|_| cpu()));
    });
    wait_until("the end of the outage", || scrape.count(&format!("{unused} is reachable again")) == 1);
    let (code, status) = scrape.terminate();
    assert_eq!(code, 0);
    let profiles = |nth: usize| &status["targets"][nth]["profiles"][0];
    assert_eq!(status["targets"][0]["profiles"][0]["pulled"], 0, "{status}");
    assert!(profiles(1)["failed"].as_u64() >= Some(1) && profiles(1)["pulled"].as_u64() >= Some(1), "{status}");
    drop(silent);
}

#[test]
fn a_target_that_collects_one_profile_at_a_time_is_pulled_serially() {
    let directory = TestDirectory::new();
    let active = AtomicUsize::new(0);
    let target = ScriptedTarget::start(move |path| {
        let response = match active.fetch_add(1, Ordering::SeqCst) {
            0 if path.contains("/profile") => {
                std::thread::sleep(Duration::from_millis(1200));
                cpu()
            }
            0 if path.ends_with("/mutex") => (404, b"lock is off: set lock=true".to_vec()),
            0 => (200, profile("inuse_space", "bytes", 500, 0)),
            _ => (429, b"another profile is being collected".to_vec()),
        };
        active.fetch_sub(1, Ordering::SeqCst);
        response
    });
    let files = directory.path().join("files");
    // The default profiles: a missing one is no failure.
    let config = directory.file(
        "scrape.yaml",
        format!("interval: 2s\ntargets: ['{}']\ndestinations: [{{directory: {}}}]\n", target.address, files.display())
            .as_bytes(),
    );
    let done = spanprof(&["scrape", "--config", &config, "--once", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stderr.matches("has no profile mutex: status 404 Not Found: lock is off").count(), 1, "{done:?}");
    for (type_name, value) in [("cpu", 1_000_000), ("inuse_space", 500)] {
        assert_eq!(total(files.to_str().unwrap(), type_name), value, "{type_name}");
    }
}

#[test]
fn termination_delivers_the_queue() {
    let directory = TestDirectory::new();
    let pulls = Arc::new(AtomicUsize::new(0));
    let counted = pulls.clone();
    let target = ScriptedTarget::start(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        cpu()
    });
    let files = directory.path().join("files");
    let config = directory.file(
        "scrape.yaml",
        format!(
            "interval: 1s\nprofiles: [{{name: cpu, seconds: 1}}]\ntargets: ['{}']\ndestinations: [{{directory: {}, keep: 2}}]\n",
            target.address,
            files.display()
        )
        .as_bytes(),
    );
    let scrape = Scrape::start(&config);
    wait_until("three pulls", || pulls.load(Ordering::Relaxed) >= 3);
    let (code, status) = scrape.terminate();
    assert_eq!(code, 0);
    let endpoint = &status["targets"][0]["profiles"][0];
    assert!(endpoint["pulled"].as_u64() >= Some(2), "{status}");
    // A pull can be decoded while the signal arrives.
    let sent = status["destinations"][0]["sent"].as_u64().unwrap();
    assert!(sent.abs_diff(endpoint["pulled"].as_u64().unwrap()) <= 1, "{status}");
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 2, "retention keeps two files");
}

#[test]
fn an_invalid_configuration_is_one_sentence_with_the_name_of_the_file() {
    let directory = TestDirectory::new();
    let config = directory.file("scrape.yaml", b"targets: [h:1]\ndestinatons: []\n");
    let failed = spanprof(&["scrape", "--config", &config]);
    assert_eq!(failed.code, 1);
    assert!(failed.stderr.contains("scrape.yaml: unknown key `destinatons`"), "{}", failed.stderr);
    assert!(failed.stderr.contains("did you mean `destinations`?"), "{}", failed.stderr);
    let missing = spanprof(&["scrape", "--config", "/nonexistent.yaml"]);
    assert!(missing.code == 1 && missing.stderr.contains("cannot read the configuration /nonexistent.yaml"));
}
