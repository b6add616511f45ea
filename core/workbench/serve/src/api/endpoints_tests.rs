//! Tests of responses that lack windows.

use std::time::Duration;

use serde_json::Value;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::{Attribute, Link, Profile, ProfilesData, ResourceProfiles, Sample, ValueType};
use spanprof_read::decode::DecodeLimits;

use super::*;
use crate::files::directory::WindowDirectory;
use crate::state::settings::{Addresses, Settings};
use crate::store::{Retention, Store};
use spanprof_answers::sources::SourcePaths;
use tempfile::TempDir;

const START_S: u64 = 1_700_000_000;
const WINDOWS: u64 = 30;

fn window(start_s: u64) -> ProfilesData {
    let mut data = ProfilesData::default();
    let link = data.dictionary.link(Link { trace_id: [1; 16], span_id: [1; 8] });
    let profile = Profile {
        sample_type: ValueType::new("wall", "nanoseconds"),
        time_unix_nano: start_s * 1_000_000_000,
        duration_nano: 10_000_000_000,
        samples: vec![Sample { values: vec![1], link, ..Sample::default() }],
        ..Profile::default()
    };
    let resource = vec![Attribute::string("service.name", "shop")];
    data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

/// A server with [`WINDOWS`] windows, whose queries read nothing before their deadline.
fn late_server(home: &TempDir) -> ServerState {
    let retention = Retention { max_bytes: u64::MAX, max_age: Duration::MAX, keep_windows: Duration::MAX };
    let mut store = Store::new(WindowDirectory::open(home.path()).unwrap(), retention);
    for nth in 0..WINDOWS {
        let data = window(START_S + 10 * nth);
        store.keep(&gzip(&otlp::encode(&data, Revision::One)), &data).unwrap();
    }
    store.index(|line| panic!("{line}"));
    store.queries.deadline = Duration::ZERO;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings {
        grpc: address,
        http: address,
        directory: home.path().to_owned(),
        retention,
        max_request_bytes: 0,
        limits: DecodeLimits::default(),
        allowed_hosts: Vec::new(),
        trace_urls: Vec::new(),
        source_paths: SourcePaths::default(),
        source_url: None,
        redaction: None,
        report: Arc::new(|_| {}),
    };
    ServerState::new(settings, Addresses { grpc: address, http: address }, store)
}

fn answer(state: &ServerState, path_and_query: &str) -> Value {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let content = super::answer(state, path, &query_string::parse(query)).expect(path_and_query);
    serde_json::from_slice(&content.bytes).unwrap()
}

#[test]
fn a_response_of_two_queries_says_what_the_less_complete_one_lacks() {
    let home = tempfile::tempdir().unwrap();
    let state = late_server(&home);
    let left_out = |query: &str| answer(&state, query)["windows_left_out"].clone();
    for query in ["/api/flamegraph", "/api/top"] {
        assert_eq!(left_out(query), WINDOWS);
    }
    // The background reads the stacks of all types.
    state.store.complete_queries();
    for query in ["/api/flamegraph", "/api/top"] {
        assert_eq!(left_out(query), 0);
    }
    for query in ["/api/flamegraph?group=route", "/api/top?beside=wall"] {
        assert_eq!(left_out(query), WINDOWS, "{query}");
    }
    assert_eq!(answer(&state, "/api/top?beside=wall")["windows"], WINDOWS);
}

#[test]
fn a_response_beyond_the_limit_of_samples_says_that_a_later_one_lacks_the_same_windows() {
    let home = tempfile::tempdir().unwrap();
    let mut state = late_server(&home);
    let interrupted = answer(&state, "/api/top");
    assert_eq!((&interrupted["windows_left_out"], interrupted.get("too_large")), (&json!(WINDOWS), None));
    state.store.queries.deadline = Duration::from_secs(60);
    state.store.queries.sources.max_samples = 3;
    for _ in 0..2 {
        let limited = answer(&state, "/api/top");
        let read = limited["windows"].as_u64().unwrap();
        assert!(read > 0 && limited["windows_left_out"] == WINDOWS - read && limited["too_large"] == true, "{limited}");
    }
}

#[test]
fn responses_that_read_each_window_name_the_time_range_of_those_they_lack() {
    let home = tempfile::tempdir().unwrap();
    let mut state = late_server(&home);
    state.store.queries.visit_deadline = Duration::ZERO;
    for (query, sides) in [
        ("/api/requests", 1),
        ("/api/explain", 1),
        ("/api/request?trace_id=01010101010101010101010101010101", 1),
        ("/api/diff?baseline_to=-1m", 2),
    ] {
        let answer = answer(&state, query);
        let members = ["windows_left_out", "left_out_from_ms", "left_out_to_ms"].map(|name| &answer[name]);
        let (from, to) = (START_S * 1000, (START_S + 10 * WINDOWS) * 1000);
        assert_eq!(members, [&json!(sides * WINDOWS), &json!(from), &json!(to)], "{query}");
    }
}
