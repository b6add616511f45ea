//! Tests of the configuration, of the differences of totals, and of the windows made of them.

use std::time::Duration;

use spanprof_profile::encode::pprof;
use spanprof_profile::{
    Attribute, AttributeSetId, Dictionary, Function, Line, Location, Profile, ProfilesData, ResourceProfiles, Sample,
    Scope, Value, ValueType,
};

use super::config::ScrapeConfig;
use super::window::{scraped_window, EndpointHistory, ScrapedWindow, WindowShape};

const DESTINATION: &str = "destinations: [{directory: out}]\n";
const NOW: u64 = 1_800_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn config(text: &str) -> ScrapeConfig {
    ScrapeConfig::parse(&format!("{text}\n{DESTINATION}")).unwrap()
}

fn error(text: &str) -> String {
    ScrapeConfig::parse(text).unwrap_err().to_string()
}

#[test]
fn a_target_is_an_address_with_the_defaults_of_the_document() {
    let config = config(
        "interval: 30s\nattributes: {deployment.environment: production, zone: a}\n\
         targets:\n- 10.0.0.7:6060\n- {url: 'https://[::1]/admin/pprof/', interval: 60, attributes: {zone: b}, profiles: [wall]}",
    );
    let [first, second] = &config.targets[..] else { panic!("{config:?}") };
    assert_eq!((first.shown.as_str(), first.host.as_str(), first.port), ("http://10.0.0.7:6060", "10.0.0.7", 6060));
    let requests: Vec<_> = first.endpoints.iter().map(|it| (it.path.as_str(), it.seconds)).collect();
    let expected = [
        ("/debug/pprof/profile", Some(29)),
        ("/debug/pprof/heap", None),
        ("/debug/pprof/block", None),
        ("/debug/pprof/mutex", None),
    ];
    assert_eq!(requests, expected);
    assert_eq!(first.attributes.len(), 2);
    assert_eq!((second.host.as_str(), second.port, second.is_secure), ("::1", 443, true));
    assert_eq!((second.endpoints[0].path.as_str(), second.endpoints[0].seconds), ("/admin/pprof/wall", Some(59)));
    assert_eq!(second.attributes[0], Attribute::string("zone", "b"));
    assert_eq!(second.attributes[1], Attribute::string("deployment.environment", "production"));
}

#[test]
fn an_unknown_key_is_an_error_with_its_path_and_the_nearest_name() {
    let target = |keys: &str| error(&format!("targets: [{{url: 'h:1', {keys}}}]\n{DESTINATION}"));
    assert_eq!(
        target("profiles: [{name: cpu, secnds: 5}]"),
        "unknown key `targets[0].profiles[0].secnds`\n  did you mean `seconds`?"
    );
    assert!(target("zzz: 1").contains("`targets[0].zzz`\n  the keys here are: url, headers, bearer_token"));
    assert!(error(&format!("tragets: []\n{DESTINATION}")).contains("did you mean `targets`?"));
}

#[test]
fn an_invalid_value_is_an_error_that_names_its_key() {
    for (text, expected) in [
        ("targets: []\ndestinations: []", "`targets`: expected at least one"),
        ("targets: [h:1]", "`destinations`: expected at least one"),
        ("targets: [x]\ntargets: [y]", "duplicate entry"),
        ("targets: ['ftp://h']\ndestinations: [{directory: d}]", "`targets[0].url`: the scheme is neither"),
        ("targets: ['http://u:marker@h']\ndestinations: [{directory: d}]", "a user name is not supported"),
        ("targets: [{url: 'h:1', interval: 0s}]\ndestinations: [{directory: d}]", "expected a time of at least 1s"),
        ("targets: [{url: 'h:1', max_body_size: big}]\ndestinations: [{directory: d}]", "expected a size such as"),
        ("targets: [{url: 'h:1', profiles: [cpuu]}]\ndestinations: [{directory: d}]", "`cpuu` is not known"),
        ("targets: [{url: 'h:1', profiles: [cpu, cpu]}]\ndestinations: [{directory: d}]", "`cpu` is named twice"),
        ("targets: [{url: 'h:1', profiles: [heap, allocs]}]\ndestinations: [{directory: d}]", "contains the profiles"),
        (
            "targets: [{url: 'h:1', profiles: [{name: heap, seconds: 5}]}]\ndestinations: [{directory: d}]",
            "`heap` is the state at one moment",
        ),
        (
            "targets: [{url: 'h:1', profiles: [{name: cpu, seconds: 50}]}]\ndestinations: [{directory: d}]",
            "a measurement longer than `interval`",
        ),
        (
            "targets: [{url: 'h:1', headers: {a: {file: f, env: e}}}]\ndestinations: [{directory: d}]",
            "expected a text, {file: PATH} or {env: NAME}",
        ),
        ("targets: [h:1]\ndestinations: [{endpoint: 'http://h', directory: d}]", "expected `endpoint`"),
        ("targets: [h:1]\ndestinations: [{endpoint: 'h:1'}]", "`destinations[0].endpoint`: the URL has no scheme"),
        ("targets: [h:1]\ndestinations: [{endpoint: 'http://h', protocol: json}]", "expected http/protobuf or grpc"),
        ("targets: [h:1]\ndestinations: [{url: 'http://h'}]", "`destinations[0].url`: expected s3://BUCKET/PREFIX"),
        (
            "targets: [h:1]\ndestinations: [{url: 's3://u:marker@b/p'}]",
            "`destinations[0].url`: the s3:// URL has a user",
        ),
        (
            "targets: [h:1]\ndestinations: [{directory: 'file://h/p'}]",
            "`destinations[0].directory`: `file://h/p` is not",
        ),
        ("targets: [h:1]\ndestinations: [{directory: 's3://b/p'}]", "`destinations[0].directory`: a URL; `url` names"),
        ("targets: [h:1]\ndestinations: [{directory: d, url: 's3://b/p'}]", "expected `endpoint`"),
        ("[1, 2]", "`the document`: expected a map of keys, got a list"),
        ("a: [", "not YAML"),
    ] {
        let found = error(text);
        assert!(found.contains(expected) && !found.contains("marker"), "{text} gave {found}");
    }
}

#[test]
fn no_form_of_a_secret_is_printed() {
    let config = config("targets: [{url: 'h:1', bearer_token: marker, headers: {x-key: marker}}]");
    assert!(!format!("{config:?}").contains("marker"));
    let text = "targets: [{url: 'h:1', headers: {'bad name': marker}}]\ndestinations: [{directory: d}]";
    assert!(!error(text).contains("marker"));
}

/// A profile of Go: totals of allocations and contention without a duration, values by function.
fn go_profile(types: &[(&str, &str)], duration_nano: u64, functions: &[(&str, &[i64])]) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let mut profiles: Vec<Profile> = types
        .iter()
        .map(|(kind, unit)| Profile {
            sample_type: ValueType::new(*kind, *unit),
            time_unix_nano: NOW - duration_nano,
            duration_nano,
            ..Profile::default()
        })
        .collect();
    for (name, values) in functions {
        let name = dictionary.string(name);
        let function = dictionary.function(Function { name, ..Function::default() });
        let lines = [Line { function, ..Line::default() }];
        let location = dictionary.location(Location { lines: &lines, address: 0x400, ..Location::default() });
        let stack = dictionary.stack(&[location]);
        // Go distinguishes the buckets of one stack by the size of their objects.
        let bytes = dictionary.attribute("bytes", Value::Int(64), "bytes");
        let attributes = dictionary.attribute_set(&[bytes]);
        for (profile, value) in profiles.iter_mut().zip(*values) {
            profile.samples.push(Sample { stack, attributes, values: vec![*value], ..Sample::default() });
        }
    }
    let resources = vec![ResourceProfiles {
        resource: Vec::new(),
        scope: Scope::default(),
        profiles,
        ..ResourceProfiles::default()
    }];
    pprof::encode(&ProfilesData { dictionary, resources })
}

const HEAP: [(&str, &str); 2] = [("alloc_space", "bytes"), ("inuse_space", "bytes")];

fn shape(name: &str) -> WindowShape {
    let attributes = vec![Attribute::string("service.name", "shop")];
    let instance = "h:1".to_owned();
    WindowShape { name: name.to_owned(), attributes, instance, interval_ns: 15 * SECOND, is_measured: false }
}

/// Type, function and value of every sample.
fn values(window: &ScrapedWindow) -> Vec<(String, String, i64)> {
    let dictionary = &window.data.dictionary;
    let mut found: Vec<_> = window
        .data
        .profiles()
        .flat_map(|(_, profile)| profile.samples.iter().map(move |sample| (profile, sample)))
        .map(|(profile, sample)| {
            let location = dictionary.get_location(dictionary.get_stack(sample.stack)[0]);
            let name = dictionary.get_string(dictionary.get_function(location.lines[0].function).name);
            (profile.type_name().to_owned(), name.to_owned(), profile.weight(sample))
        })
        .collect();
    found.sort();
    found
}

fn row(type_name: &str, function: &str, value: i64) -> (String, String, i64) {
    (type_name.to_owned(), function.to_owned(), value)
}

#[test]
fn totals_become_differences_and_states_stay() {
    let (shape, mut history) = (shape("heap"), EndpointHistory::default());
    let mut pull = |functions: &[(&str, &[i64])], now| {
        scraped_window(&go_profile(&HEAP, 0, functions), &shape, &mut history, now).unwrap()
    };
    let first = pull(&[("a", &[1000, 10]), ("b", &[500, 0])], NOW);
    assert_eq!(values(&first), [row("inuse_space", "a", 10)], "the first totals are the base");

    // Another order of functions, and a new one: the ids of the second file differ.
    let second = pull(&[("c", &[7, 7]), ("b", &[500, 0]), ("a", &[1600, 20])], NOW + 15 * SECOND);
    let expected = [
        row("alloc_space", "a", 600),
        row("alloc_space", "c", 7),
        row("inuse_space", "a", 20),
        row("inuse_space", "c", 7),
    ];
    assert_eq!(values(&second), expected);
    assert!(!second.has_restarted);
    for (resource, profile) in second.data.profiles() {
        assert_eq!((profile.time_unix_nano, profile.duration_nano), (NOW, 15 * SECOND));
        assert_ne!(profile.profile_id, [0; 16]);
        assert_eq!(resource.service_name(), "shop");
        assert!(resource.is_one_process());
        assert_ne!(profile.samples[0].attributes, AttributeSetId::EMPTY);
    }

    let third = pull(&[("c", &[7, 0]), ("b", &[501, 0]), ("a", &[1600, 0])], NOW + 30 * SECOND);
    assert_eq!(values(&third), [row("alloc_space", "b", 1)]);
}

#[test]
fn after_a_restart_the_totals_are_those_since_the_restart() {
    let (shape, mut history) = (shape("heap"), EndpointHistory::default());
    let mut pull = |functions: &[(&str, &[i64])]| {
        scraped_window(&go_profile(&HEAP, 0, functions), &shape, &mut history, NOW).unwrap()
    };
    pull(&[("a", &[1_000_000, 1]), ("b", &[1000, 1])]);
    let restarted = pull(&[("a", &[40_000, 1]), ("b", &[2000, 1])]);
    assert!(restarted.has_restarted);
    assert_eq!(values(&restarted)[..2], [row("alloc_space", "a", 40_000), row("alloc_space", "b", 2000)]);

    // Go estimates totals from samples; a decrease by rounding is no restart.
    let rounded = pull(&[("a", &[39_990, 1]), ("b", &[3000, 1])]);
    assert!(!rounded.has_restarted);
    assert_eq!(values(&rounded)[..1], [row("alloc_space", "b", 1000)]);
}

#[test]
fn a_measurement_by_the_target_is_forwarded_unchanged() {
    let (mut shape, mut history) = (shape("block"), EndpointHistory::default());
    shape.is_measured = true;
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    let body = go_profile(&types, 5 * SECOND, &[("wait", &[3, 900])]);
    for _ in 0..2 {
        let window = scraped_window(&body, &shape, &mut history, NOW).unwrap();
        assert_eq!(values(&window), [row("contentions", "wait", 3), row("delay", "wait", 900)]);
        let (_, profile) = window.data.profiles().next().unwrap();
        assert_eq!((profile.time_unix_nano, profile.duration_nano), (NOW - 5 * SECOND, 5 * SECOND));
    }
    assert!(!history.has_totals());
}

#[test]
fn totals_with_the_duration_since_the_start_are_totals() {
    let (shape, mut history) = (shape("heap"), EndpointHistory::default());
    for (value, expected) in [(100, None), (130, Some(row("alloc_space", "a", 30)))] {
        let body = go_profile(&HEAP, 90 * SECOND, &[("a", &[value, 0])]);
        let window = scraped_window(&body, &shape, &mut history, NOW).unwrap();
        assert_eq!(values(&window).first(), expected.as_ref());
    }
}

#[test]
fn the_times_of_a_target_with_a_wrong_clock_are_replaced() {
    let mut history = EndpointHistory::default();
    let body = go_profile(&[("cpu", "nanoseconds")], 5 * SECOND, &[("f", &[1])]);
    let now = NOW + Duration::from_secs(3600).as_nanos() as u64;
    let window = scraped_window(&body, &shape("cpu"), &mut history, now).unwrap();
    assert_eq!(window.data.profiles().next().unwrap().1.end_unix_nano(), now);
}

#[test]
fn times_of_holders_and_of_waiters_have_different_types() {
    let mut history = EndpointHistory::default();
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    for value in [1, 2] {
        let body = go_profile(&types, 0, &[("unlock", &[value, value * 100])]);
        let window = scraped_window(&body, &shape("mutex"), &mut history, NOW).unwrap();
        let expected: &[_] =
            if value == 1 { &[] } else { &[row("mutex_contentions", "unlock", 1), row("mutex_delay", "unlock", 100)] };
        assert_eq!(values(&window), expected);
    }
}

#[test]
fn a_response_that_is_no_profile_is_an_error_and_keeps_the_base() {
    let (shape, mut history) = (shape("heap"), EndpointHistory::default());
    let mut pull = |body: &[u8]| scraped_window(body, &shape, &mut history, NOW);
    pull(&go_profile(&HEAP, 0, &[("a", &[100, 0])])).unwrap();
    for body in [&b""[..], b"<html></html>", b"main;f 3\n", b"\x1f\x8b\x08\0truncated", &[0xff; 100]] {
        assert!(pull(body).is_err(), "{body:?}");
    }
    let window = pull(&go_profile(&HEAP, 0, &[("a", &[130, 0])])).unwrap();
    assert_eq!(values(&window), [row("alloc_space", "a", 30)]);
}
