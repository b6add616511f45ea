//! The control operations over a running profiler: status, enable, disable, changed keys, bursts, and their refusals.

use std::time::Duration;

use super::profiler::{burn, one_at_a_time, wait_until, without_destination, CapturedLog};
use super::pull;
use serde_json::Value;
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_config::{Config, ConfigPatch, ConfigValue};
use spanprof_profiler::control::respond;
use spanprof_profiler::http::message::HttpRequest;
use spanprof_profiler::ProfilerHandle;

/// The body of Alertmanager 0.28 (`webhook_config`, version 4).
const FIRING: &str = r#"{"receiver":"profile","status":"firing","alerts":[{"status":"firing","labels":{"alertname":"HighLatency",
"service":"checkout","severity":"page"},"annotations":{"summary":"p99 above 2 s"},"startsAt":"2026-11-23T21:04:05.678Z",
"endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus:9090/graph?g0.expr=x","fingerprint":"6e3b1d2f4a5c6789"}],
"groupLabels":{"alertname":"HighLatency"},"commonLabels":{"alertname":"HighLatency","service":"checkout","severity":"page"},
"commonAnnotations":{"summary":"p99 above 2 s"},"externalURL":"http://alertmanager:9093","version":"4",
"groupKey":"{}:{alertname=\"HighLatency\"}","truncatedAlerts":0}"#;

fn request(method: &str, path: &str, query: &str, body: &str) -> HttpRequest {
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let (body, client) = (body.as_bytes().to_vec(), "192.0.2.7:5000".to_owned());
    HttpRequest { body, client, ..HttpRequest::new(method, &target) }
}

fn send(method: &str, path: &str, query: &str, body: &str) -> (u16, Value) {
    let response = respond(&request(method, path, query, body), true);
    (response.status, serde_json::from_slice(&response.body).unwrap())
}

const CONTROL: &str = "/debug/spanprof";
const BURST: &str = "/debug/spanprof/burst";

fn start(config: Config) -> ProfilerHandle {
    ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).unwrap()
}

#[test]
fn the_status_has_state_sources_and_statistics_and_no_secret() {
    let _serial = one_at_a_time();
    let headers = spanprof_config::Headers::new([("authorization".to_owned(), "Bearer marker".to_owned())]);
    let profiler = start(Config { headers, ..without_destination() });
    let (status, body) = send("GET", CONTROL, "", "");
    assert_eq!((status, &body["state"], &body["enabled"]), (200, &Value::from("running"), &Value::Bool(true)));
    assert_eq!(body["config"]["sample_rate"]["value"], "100");
    assert_eq!(body["config"]["sample_rate"]["source"], "default");
    assert!(body["stats"]["windows.closed"].is_u64() && body["burst"].is_null());
    assert!(!body.to_string().contains("marker"), "{body}");
    profiler.stop();
    assert_eq!(send("GET", CONTROL, "", "").0, 409);
}

#[test]
fn changes_by_requests_are_those_of_update_with_the_source_endpoint() {
    let _serial = one_at_a_time();
    let profiler = start(without_destination());
    let (status, body) = send("DELETE", CONTROL, "", "");
    assert_eq!((status, &body["enabled"], profiler.is_running()), (200, &Value::Bool(false), false));
    assert_eq!(body["config"]["enabled"]["source"], "endpoint");
    assert_eq!(send("POST", CONTROL, "", "").1["state"], "running");
    let (status, body) = send("PATCH", CONTROL, "", r#"{"sample_rate": 50, "wall": true}"#);
    assert_eq!((status, &body["config"]["sample_rate"]["value"]), (200, &Value::from("50")));
    assert!(profiler.config().wall);
    let (status, body) = send("PATCH", CONTROL, "", r#"{"sample_rate": 70, "sampel_rate": 60}"#);
    assert_eq!((status, &body["hint"]), (400, &Value::from("did you mean `sample_rate`?")));
    for refused in [r#"{"sample_rate": 0}"#, r#"{"endpoint": "http://x"}"#, "[]", "{", r#"{"wall": "maybe"}"#] {
        assert_eq!(send("PATCH", CONTROL, "", refused).0, 400, "{refused}");
    }
    assert_eq!(profiler.config().sample_rate, 50, "a refused request changes nothing");
    profiler.stop();
}

#[test]
fn a_change_requires_a_token_and_is_refused_when_a_browser_sends_it() {
    let _serial = one_at_a_time();
    let profiler = start(without_destination());
    for method in ["POST", "DELETE", "PATCH"] {
        let change = request(method, CONTROL, "", "{}");
        assert_eq!(respond(&change, false).status, 403, "{method} without a token");
        for header in ["origin", "sec-fetch-site"] {
            let headers = vec![(header.to_owned(), "x".to_owned())];
            assert_eq!(respond(&HttpRequest { headers, ..change.clone() }, true).status, 403, "{method}");
        }
    }
    assert!(profiler.is_running());
    assert_eq!(respond(&request("GET", CONTROL, "", ""), false).status, 200);
    let refused = respond(&request("PUT", CONTROL, "", ""), true);
    assert!(refused.headers.contains(&("Allow", "GET, POST, DELETE, PATCH".to_owned())), "{:?}", refused.headers);
    assert_eq!((send("GET", BURST, "", "").0, send("POST", "/debug/spanprof/x", "", "").0), (405, 404));
    profiler.stop();
}

#[test]
fn the_webhook_of_an_alert_begins_a_burst_that_ends_by_itself() {
    let _serial = one_at_a_time();
    let profiler = start(Config { sample_rate: 40, ..without_destination() });
    let (status, body) = send("POST", BURST, "seconds=2&rate=1000", FIRING);
    assert_eq!((status, &body["config"]["sample_rate"]["value"]), (200, &Value::from("1000")));
    assert_eq!(body["config"]["sample_rate"]["source"], "burst");
    assert!(body["burst"]["seconds_left"].is_u64());
    let patch = ConfigPatch(vec![("gc".to_owned(), ConfigValue::Bool(false))]);
    profiler.update(&patch).unwrap();
    assert_eq!((profiler.config().sample_rate, profiler.config().wall_rate), (1000, Some(40)), "other keys may change");
    wait_until("the burst ends", || profiler.config().sample_rate == 40);
    let config = profiler.config();
    assert_eq!((config.wall_rate, config.gc), (None, false));
    let resolved = FIRING.replacen("firing", "resolved", 1);
    let ended = respond(&request("POST", BURST, "", &resolved), true);
    assert_eq!((ended.status, profiler.config().sample_rate), (200, 40));
    assert_eq!(send("POST", BURST, "rate=5000", FIRING).0, 400);
    send("DELETE", CONTROL, "", "");
    assert_eq!(send("POST", BURST, "", FIRING).0, 409, "an alert does not enable a disabled profiler");
    profiler.stop();
}

#[test]
fn a_burst_has_its_profiles_without_a_budget_and_ends_early_by_a_request() {
    let _serial = one_at_a_time();
    let warnings = vec!["a warning of the start".to_owned()];
    let profiler = start(Config { sample_rate: 40, warnings, ..without_destination() });
    let log = CapturedLog::begin();
    let (status, body) = send("POST", BURST, "seconds=60&rate=500&wall=true&heap_interval=64KiB", "");
    assert_eq!(status, 200, "{body}");
    let config = profiler.config();
    assert_eq!((config.sample_rate, config.wall, config.wall_rate), (500, true, Some(40)));
    assert_eq!((config.heap_interval, config.cpu_budget), (65_536, 0.0));
    assert_eq!(send("DELETE", BURST, "", "").1["burst"], Value::Null);
    assert_eq!(send("DELETE", BURST, "", "").0, 200, "there is none");
    let lines = log.texts();
    let expected = Config { sample_rate: 40, ..without_destination() };
    let config = profiler.config();
    assert_eq!((config.sample_rate, config.wall, config.wall_rate), (40, false, expected.wall_rate));
    assert_eq!((config.heap_interval, config.cpu_budget), (expected.heap_interval, expected.cpu_budget));
    for refused in ["wall=maybe", "heap_interval=0", "endpoint=x", "cpu_budget=1"] {
        assert_eq!(send("POST", BURST, refused, "").0, 400, "{refused}");
    }
    assert_eq!(send("GET", CONTROL, "", "").1["burst"], Value::Null, "a refused burst changes nothing");
    profiler.stop();
    assert!(!lines.iter().any(|line| line.contains("a warning of the start")), "{lines:?}");
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("burst")).collect();
    let [begun, ended, ended_by] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(begun.contains("a burst of 60 s begins, sample_rate=500, wall=`true`, heap_interval=`64KiB`"), "{begun}");
    assert!(begun.ends_with("(POST /debug/spanprof/burst from 192.0.2.7:5000)"), "{begun}");
    assert!(ended.contains("the burst has ended"), "{ended}");
    assert!(ended_by.contains("DELETE /debug/spanprof/burst from 192.0.2.7:5000"), "{ended_by}");
}

#[test]
fn each_change_by_a_request_is_logged_with_its_client_and_refused_ones_are_not() {
    let _serial = one_at_a_time();
    let profiler = start(without_destination());
    let log = CapturedLog::begin();
    send("PATCH", CONTROL, "", r#"{"sample_rate": 50, "tags": {"api_token": "marker"}}"#);
    send("PATCH", CONTROL, "", r#"{"sample_rate": 0}"#);
    send("DELETE", CONTROL, "", "");
    send("POST", CONTROL, "", "");
    let lines = log.texts();
    profiler.stop();
    let changes: Vec<_> = lines.iter().filter(|line| line.ends_with("from 192.0.2.7:5000)")).collect();
    let [patched, disabled, enabled] = changes.as_slice() else { panic!("{lines:?}") };
    assert!(patched.contains("sample_rate=50") && patched.contains("(PATCH /debug/spanprof from"), "{patched}");
    assert!(disabled.contains("enabled=false was set") && enabled.contains("enabled=true was set"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("marker")), "{lines:?}");
}

/// Sends a request to the profiler's own listener.
fn over_socket(address: &str, method: &str, path: &str, token: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n");
    let (status, _, body) = pull::exchange(address, &format!("{head}Content-Length: {length}\r\n\r\n{body}"));
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn the_pull_server_performs_the_operations_also_while_disabled() {
    let _serial = one_at_a_time();
    let profiler = start(Config { enabled: false, ..pull::config(Some("marker")) });
    let address = pull::address(&profiler);
    let (status, body) = over_socket(&address, "GET", CONTROL, "marker", "");
    assert_eq!((status, &body["enabled"]), (200, &Value::Bool(false)));
    assert!(!body.to_string().contains("marker"), "{body}");
    assert_eq!(over_socket(&address, "POST", CONTROL, "wrong", "").0, 401);
    assert!(!profiler.is_running());
    assert_eq!(over_socket(&address, "POST", CONTROL, "marker", "").0, 200);
    assert!(profiler.is_running());
    let (status, body) = over_socket(&address, "PATCH", CONTROL, "marker", r#"{"cpu": {"sample_rate": 20}}"#);
    assert_eq!((status, &body["config"]["sample_rate"]["value"]), (200, &Value::from("20")));
    assert_eq!(over_socket(&address, "POST", "/debug/spanprof/burst?seconds=5&rate=500", "marker", FIRING).0, 200);
    assert_eq!(profiler.config().sample_rate, 500);
    assert_eq!(over_socket(&address, "PATCH", CONTROL, "marker", r#"{"cpu": {"sampel_rate": 20}}"#).0, 400);
    profiler.stop();
    let profiler = start(pull::config(None));
    let address = pull::address(&profiler);
    assert_eq!(over_socket(&address, "DELETE", CONTROL, "", "").0, 403, "no token is configured");
    assert!(profiler.is_running());
    profiler.stop();
}

#[test]
fn changes_by_api_file_and_requests_at_once_leave_a_running_profiler_and_the_last_writer_wins() {
    let _serial = one_at_a_time();
    let file = std::env::temp_dir().join(format!("spanprof-toggles-{}.yaml", std::process::id()));
    std::fs::write(&file, "sample_rate: 100\n").unwrap();
    let name = file.to_string_lossy().into_owned();
    let profiler = start(Config { config_file: Some(name), ..pull::config(Some("t")) });
    let address = pull::address(&profiler);
    let rounds = 15;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                let enabled = ConfigValue::Bool(round % 2 == 0);
                profiler.update(&ConfigPatch(vec![("enabled".to_owned(), enabled)])).unwrap();
                burn(Duration::from_millis(50));
            }
        });
        scope.spawn(|| {
            for round in 0..rounds {
                let method = if round % 2 == 0 { "DELETE" } else { "POST" };
                assert_eq!(over_socket(&address, method, CONTROL, "t", "").0, 200);
                burn(Duration::from_millis(50));
            }
        });
        scope.spawn(|| {
            for round in 0..rounds {
                let text = format!("sample_rate: {}\nenabled: {}\n", 10 + round, round % 2 == 0);
                std::fs::write(file.with_extension("new"), text).unwrap();
                std::fs::rename(file.with_extension("new"), &file).unwrap();
                burn(Duration::from_millis(50));
            }
        });
    });
    std::fs::write(&file, "sample_rate: 77\nenabled: true\n").unwrap();
    wait_until("the file is the last writer", || {
        burn(Duration::from_millis(5));
        profiler.config().sample_rate == 77
    });
    over_socket(&address, "POST", CONTROL, "t", "");
    assert!(profiler.is_running());
    assert_eq!(profiler.stats().counter("internal.panics"), 0);
    assert!(profiler.stop());
    std::fs::remove_file(file).unwrap();
}
