//! Own code by configuration through a window and both formats: readers classify frames as the configuration does.

use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::encode::{otlp, pprof};
use spanprof_profile::redact::RedactionRule;
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::query::{self, Granularity};
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind};
use std::sync::Arc;

use crate::counters::Counters;
use crate::engine::EngineSettings;
use crate::scripted_engine_testing::{closed, redacting_engine, settings};
use crate::testing::FakeRuntime;

/// A window of the stack `main` → `shared` → `price`; the first two are in directories of native code without own code by the rules.
fn window(prefixes: &[&str], rules: &[[(&str, &str); 3]]) -> ProfilesData {
    let (runtime, counters) = (FakeRuntime::new(), Arc::new(Counters::default()));
    let own_code = OwnCode::new(prefixes);
    let rule = |pairs: &[(&str, &str); 3]| {
        let pairs = pairs.map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
        RedactionRule::from_pairs(&pairs).expect("a rule")
    };
    let rules = rules.iter().map(rule).collect();
    let settings = EngineSettings { own_code, ..settings() };
    let mut engine = redacting_engine(settings, &runtime, &counters, rules);
    let codes = [
        runtime.define("price", "/opt/vendor/libprice.so", 1),
        runtime.define("shared", "/srv/shop/libshared.so", 1),
        runtime.define("main", "/srv/main", 1),
    ];
    engine.process(
        0,
        &RawSample {
            kind: SampleKind::Cpu,
            flags: SampleFlags(0),
            thread_id: 1,
            time_ns: 5_000_000,
            values: [10_000_000, 0],
            key: 0,
            context: Context::None,
            frames: &codes.map(|code| RawFrame { code, at: 0 }),
        },
    );
    closed(&mut engine, 10_000_000).expect("a window")
}

/// The functions with an own weight.
fn own(data: &ProfilesData) -> Vec<String> {
    let table = query::top(data, "cpu", Granularity::Function);
    assert_eq!(table.rows.len(), 3);
    table.rows.into_iter().filter(|row| row.own > 0).map(|row| row.location.function).collect()
}

#[test]
fn configured_own_code_is_own_code_for_the_readers_of_both_formats() {
    for (prefixes, expected) in [(&["/srv/shop"][..], &["shared"][..]), (&["vendor/", "/srv"], &["price"]), (&[], &[])]
    {
        let data = window(prefixes, &[]);
        let limits = DecodeLimits::default();
        let otlp = decode::otlp::decode(&otlp::encode(&data, otlp::Revision::One), &limits).expect("OTLP");
        let pprof = decode::pprof::decode(&pprof::encode(&data), &limits).expect("pprof");
        let again = decode::otlp::decode(&otlp::encode(&pprof, otlp::Revision::One), &limits).expect("OTLP");
        assert_eq!([own(&data), own(&otlp), own(&pprof), own(&again)], [expected; 4], "{prefixes:?}");
    }
}

#[test]
fn prefixes_are_redacted_as_the_paths_of_the_profile() {
    let relative = [("where", "file"), ("action", "relativize"), ("with", "/srv/")];
    let replaced = [("where", "file"), ("match", "/srv/.*"), ("action", "replace")];
    for rule in [relative, replaced] {
        let data = window(&["/srv/shop"], &[rule]);
        assert_eq!(own(&data), ["shared"], "frames are compared before redaction");
        let text = String::from_utf8_lossy(&pprof::encode_uncompressed(&data)).into_owned();
        assert!(!text.contains("/srv"), "{text}");
    }
    let data = window(&["/srv/shop"], &[relative]);
    let pprof = decode::pprof::decode(&pprof::encode(&data), &DecodeLimits::default()).expect("pprof");
    assert_eq!(own(&pprof), ["shared"], "a relative prefix matches relative paths");
}

#[test]
fn rules_for_labels_do_not_change_the_origin_of_frames() {
    let data = window(&["/srv/shop"], &[[("where", "label_value"), ("match", "own"), ("action", "drop")]]);
    assert_eq!(own(&data), ["shared"]);
}
