//! Pulls over real sockets: profiles, access rules, parameters, limits.

use super::profiler::{burn, one_at_a_time, start_native, without_destination};
use spanprof_aggregate::StatValue;
use spanprof_config::Config;
use spanprof_export::Secret;
use spanprof_profile::ProfilesData;
use spanprof_profiler::ProfilerHandle;
use spanprof_read::decode::{self, DecodeLimits};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub fn config(token: Option<&str>) -> Config {
    Config { pull: Some("127.0.0.1:0".to_owned()), pull_token: token.map(Secret::from), ..without_destination() }
}

pub fn address(profiler: &ProfilerHandle) -> String {
    match profiler.stats().get("pull.address") {
        Some(StatValue::Text(address)) => address.clone(),
        other => panic!("no address: {other:?}"),
    }
}

/// Sends a request; status, headers and body of the response.
pub fn exchange(address: &str, request: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a whole response") + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, bytes.split_off(end))
}

fn get(address: &str, path: &str) -> (u16, String, Vec<u8>) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

pub fn status(address: &str, path: &str) -> u16 {
    get(address, path).0
}

fn profile(address: &str, path: &str) -> ProfilesData {
    let (status, head, body) = get(address, path);
    assert_eq!(status, 200, "{head}{}", String::from_utf8_lossy(&body));
    decode::pprof::decode(&body, &DecodeLimits::default()).unwrap()
}

fn total(data: &ProfilesData, type_name: &str) -> i64 {
    let (_, profile) = data.profiles().find(|(_, profile)| profile.type_name() == type_name).unwrap();
    profile.samples.iter().map(|sample| profile.weight(sample)).sum()
}

/// Calls `body` while another thread uses CPU time.
fn while_burning<T>(body: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                burn(Duration::from_millis(5));
            }
        });
        let result = body();
        done.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn a_cpu_profile_is_pulled_while_the_program_runs() {
    let _one = one_at_a_time();
    let profiler = start_native(config(None)).unwrap();
    let address = address(&profiler);
    let data = while_burning(|| profile(&address, "/debug/pprof/profile?seconds=1"));
    assert!(total(&data, "cpu") > 0);
    let (resource, profile) = data.profiles().next().unwrap();
    assert!(profile.duration_nano >= 1_000_000_000);
    assert_eq!(resource.service_name(), profiler_service(&profiler));
    let stats = profiler.stats();
    assert_eq!((stats.counter("pull.requests"), stats.counter("pull.answered")), (1, 1));
    assert_eq!(stats.counter("windows.closed"), 0, "the open window stays open");
    profiler.stop();
    assert!(TcpStream::connect(&address).is_err(), "the port is closed after stop");
}

fn profiler_service(profiler: &ProfilerHandle) -> String {
    profiler.config().service_name
}

#[test]
fn pages_and_refusals_have_their_status() {
    let _one = one_at_a_time();
    let profiler = start_native(config(None)).unwrap();
    let address = address(&profiler);
    let (ok, _, page) = get(&address, "/debug/pprof/");
    assert_eq!(ok, 200);
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("<a href=\"profile\">") && page.contains("lock=true"), "{page}");
    let (ok, _, program) = get(&address, "/debug/pprof/cmdline");
    assert!(ok == 200 && !program.is_empty() && !program.contains(&0), "{program:?}");
    let (status_of_wall, _, text) = get(&address, "/debug/pprof/wall?seconds=1");
    assert_eq!((status_of_wall, String::from_utf8(text).unwrap().trim()), (404, "wall is off: set wall=true"));
    for path in ["/", "/debug/pprof/none", "/debug/pprof/../../etc/passwd", "/debug/pprof/%2e%2e/", "/debug/pprofile"] {
        assert_eq!(status(&address, path), 404, "{path}");
    }
    for seconds in ["1e9", "-1", "NaN", "61"] {
        assert_eq!(status(&address, &format!("/debug/pprof/profile?seconds={seconds}")), 400, "{seconds}");
    }
    let foreign = "GET /debug/pprof/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(exchange(&address, foreign).0, 403);
    let post = format!("POST /debug/pprof/profile HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(exchange(&address, &post).0, 405);
    assert_eq!(exchange(&address, "nonsense\r\n\r\n").0, 400);
    let stats = profiler.stats();
    assert_eq!(stats.counter("pull.refused_access"), 1);
    assert_eq!(stats.counter("pull.incomplete"), 1);
    profiler.stop();
}

#[test]
fn a_token_is_required_and_shown_nowhere() {
    let _one = one_at_a_time();
    let profiler = start_native(config(Some("marker"))).unwrap();
    let address = address(&profiler);
    assert_eq!(status(&address, "/debug/pprof/"), 401);
    let with = |token| {
        let request = format!("GET /debug/pprof/ HTTP/1.1\r\nHost: any\r\nAuthorization: Bearer {token}\r\n\r\n");
        exchange(&address, &request)
    };
    assert_eq!(with("wrong").0, 401);
    let (status, head, page) = with("marker");
    assert_eq!(status, 200);
    assert!(!format!("{head}{}{:?}", String::from_utf8_lossy(&page), profiler.stats()).contains("marker"));
    profiler.stop();
}

#[test]
fn there_is_one_collection_at_a_time_and_it_ends_when_its_client_leaves() {
    let _one = one_at_a_time();
    let profiler = start_native(config(None)).unwrap();
    let address = address(&profiler);
    let request = format!("GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let begin = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut first = begin();
    let refused = loop {
        match get(&address, "/debug/pprof/profile?seconds=0.01") {
            // The first request is not handled yet, or lost against the short one.
            (200, ..) if first.peek(&mut [0]).is_ok() => first = begin(),
            (200, ..) => {}
            other => break other,
        }
    };
    assert_eq!(refused.0, 429, "{}", refused.1);
    assert!(refused.1.contains("Retry-After: "), "{}", refused.1);
    for _ in 0..3 {
        assert_eq!(status(&address, "/debug/pprof/profile?seconds=0.01"), 429);
    }
    assert!(first.peek(&mut [0]).is_err(), "the refused pulls do not end the first one");
    drop(first);
    while status(&address, "/debug/pprof/profile?seconds=0.01") != 200 {
        std::thread::sleep(Duration::from_millis(50));
    }
    profiler.stop();
}
