//! Fixtures: a running `spanprof serve`, a finished `spanprof VERB`, a temporary directory, and profiles to send.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::{
    Attribute, Dictionary, FrameType, Function, Line, Link, Location, Profile, ProfilesData, ResourceProfiles, Sample,
    Scope, Value, ValueType,
};

pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A directory of one test, removed on drop.
pub struct TestDirectory(PathBuf);

impl TestDirectory {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("spanprof-it-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TestDirectory(path.canonicalize().unwrap())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Names of its entries, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A finished process of the command line.
#[derive(Debug)]
pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanprof"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn spanprof(arguments: &[&str]) -> Finished {
    let output = command(arguments).output().unwrap();
    Finished {
        code: output.status.code().expect("an exit code, not a signal"),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub fn spanprof_reading(arguments: &[&str], stdin: &[u8]) -> Finished {
    let mut child =
        command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    let output = child.wait_with_output().unwrap();
    Finished {
        code: output.status.code().expect("an exit code, not a signal"),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A running `spanprof serve` on free ports, killed on drop.
pub struct Serve {
    child: Child,
    pub first_line: String,
    pub grpc: String,
    pub http: String,
}

impl Serve {
    pub fn start(directory: &Path, more: &[&str]) -> Serve {
        let mut arguments = vec!["serve", "--grpc", "0", "--http", "0", "--json", "--dir", directory.to_str().unwrap()];
        arguments.extend(more);
        let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first_line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
        if first_line.is_empty() {
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            panic!("serve did not start: {stderr}");
        }
        let member = |name: &str| {
            let from = first_line.find(&format!("\"{name}\":\"")).expect("a member") + name.len() + 4;
            first_line[from..].split('"').next().unwrap().to_owned()
        };
        let (grpc, http) = (member("grpc"), member("http"));
        Serve { child, first_line, grpc, http }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name and waits for the end: exit code and stderr.
    pub fn end(&mut self, signal: &str) -> (Option<i32>, String) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "serve did not end on {signal}");
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (status.code(), stderr)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One sample to be sent: root-first functions, weight in ns, labels, trace and span number (0 for none). A function is a name of own
/// code, a name and an absolute path or `<type>` with a space between them (`.so` of native code), or a reason in brackets.
pub struct TestSample<'a>(pub &'a [&'a str], pub i64, pub &'a [(&'a str, &'a str)], pub u64);

pub const PERIOD_NS: i64 = 10_000_000;

/// Trace and span id of a number.
pub fn ids(number: u64) -> ([u8; 16], [u8; 8]) {
    let mut trace_id = [0xab; 16];
    trace_id[8..].copy_from_slice(&number.to_be_bytes());
    (trace_id, (number | 0xcd00_0000_0000_0000).to_be_bytes())
}

/// One service's window of ten seconds that ended now, of type `cpu` (counted periods) or any other (nanoseconds).
pub fn window(service: &str, type_name: &str, samples: &[TestSample<'_>]) -> ProfilesData {
    window_at(service, type_name, now_ns() - 10_000_000_000, samples)
}

pub fn window_at(service: &str, type_name: &str, start_ns: u64, samples: &[TestSample<'_>]) -> ProfilesData {
    let mut dictionary = Dictionary::new();
    let counted = type_name == "cpu";
    let samples = samples
        .iter()
        .map(|TestSample(functions, weight_ns, labels, number)| {
            let mut locations = Vec::new();
            for name in functions.iter().rev() {
                let own = format!("/srv/{service}/app.py");
                let (name, file, frame_type) = match name.split_once(" /").or(name.split_once(" <")) {
                    _ if name.ends_with(" stub]") => (*name, "", FrameType::Jvm),
                    _ if name.starts_with('[') => (*name, "", FrameType::Unspecified),
                    _ if name.starts_with("v8::") => (*name, "", FrameType::Native),
                    _ if name.starts_with("JSON.") => (*name, "v8:builtin", FrameType::V8js),
                    Some((function, _)) if name.ends_with(".so") => {
                        (function, &name[function.len() + 1..], FrameType::Native)
                    }
                    Some((function, _)) => (function, &name[function.len() + 1..], FrameType::Cpython),
                    None => (*name, own.as_str(), FrameType::Cpython),
                };
                let function = Function {
                    name: dictionary.string(name),
                    filename: dictionary.string(file),
                    ..Function::default()
                };
                let function = dictionary.function(function);
                let attributes = dictionary.frame_type(frame_type);
                let lines = &[Line { function, line: 12, column: 0 }];
                locations.push(dictionary.location(Location { lines, attributes, ..Location::default() }));
            }
            let stack = dictionary.stack(&locations);
            let attributes: Vec<_> =
                labels.iter().map(|(key, value)| dictionary.attribute(key, Value::String(value), "")).collect();
            let attributes = dictionary.attribute_set(&attributes);
            let link = if *number == 0 {
                Default::default()
            } else {
                let (trace_id, span_id) = ids(*number);
                dictionary.link(Link { trace_id, span_id })
            };
            let value = if counted { weight_ns / PERIOD_NS } else { *weight_ns };
            Sample { stack, attributes, link, values: vec![value], ..Sample::default() }
        })
        .collect();
    let sample_type =
        if counted { ValueType::new("samples", "count") } else { ValueType::new(type_name, "nanoseconds") };
    let profile = Profile {
        sample_type,
        period_type: ValueType::new(type_name, "nanoseconds"),
        period: PERIOD_NS,
        time_unix_nano: start_ns,
        duration_nano: 10_000_000_000,
        // Without an id a profile is never a duplicate.
        profile_id: [0; 16],
        samples,
        ..Profile::default()
    };
    let resource = vec![Attribute::string("service.name", service), Attribute::int("process.pid", 4711)];
    ProfilesData {
        dictionary,
        resources: vec![ResourceProfiles {
            resource,
            scope: Scope::spanprof(),
            profiles: vec![profile],
            ..ResourceProfiles::default()
        }],
    }
}

/// A window of two endpoints and three requests.
pub fn shop(service: &str) -> ProfilesData {
    window(
        service,
        "cpu",
        &[
            TestSample(&["main", "serve", "cart", "price"], 500_000_000, &[("endpoint", "/cart")], 1),
            TestSample(&["main", "serve", "cart", "render"], 200_000_000, &[("endpoint", "/cart")], 2),
            TestSample(&["main", "serve", "pay", "price"], 300_000_000, &[("endpoint", "/pay")], 3),
        ],
    )
}

pub fn encoded(data: &ProfilesData) -> Vec<u8> {
    otlp::encode(data, Revision::One)
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut out).unwrap();
    out
}

/// The number after `"name":` in JSON text, first occurrence.
pub fn number(json: &str, name: &str) -> i64 {
    let from = json.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}")) + name.len() + 3;
    let digits =
        json[from..].find(|letter: char| letter != '-' && !letter.is_ascii_digit()).unwrap_or(json.len() - from);
    json[from..from + digits].parse().unwrap_or_else(|_| panic!("{name} is no number in {json}"))
}
