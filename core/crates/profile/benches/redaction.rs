//! Cost of redaction beside the encoding of the same profile: 100,000 different functions, each with a stack, and 1,000 labels.
//! Prints medians of interleaved rounds. Run with `cargo bench -p spanprof-profile --bench redaction`.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use flate2::write::GzEncoder;
use flate2::Compression;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::encode::pprof;
use spanprof_profile::redact::{ProfileRedactor, RedactionRule, RedactionSettings, UnredactedProfiles};
use spanprof_profile::{
    Attribute, Function, Line, Location, Profile, ProfilesData, ResourceProfiles, Sample, Value, ValueType,
};

const STACKS: u32 = 100_000;
const DEPTH: u32 = 20;
const ROUNDS: usize = 15;

fn rule(pairs: &[(&str, &str)]) -> RedactionRule {
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect();
    RedactionRule::from_pairs(&pairs).expect("a valid rule")
}

/// A rule set of the guide, none of which matches a text of the profile without planted functions.
fn rules() -> Vec<RedactionRule> {
    vec![
        rule(&[("where", "function"), ("match", "query_[0-9]+"), ("with", "query")]),
        rule(&[("where", "file"), ("match", "/users/[^/]+/"), ("action", "strip_prefix")]),
        rule(&[("where", "label_value"), ("key", "^user$"), ("action", "hash")]),
        rule(&[("where", "label_key"), ("match", "^internal_"), ("action", "drop")]),
        rule(&[("where", "label_value, resource"), ("match", "[a-z.]+@example\\.com")]),
    ]
}

fn profile(planted: bool) -> ProfilesData {
    let mut data = ProfilesData::default();
    let dictionary = &mut data.dictionary;
    let locations: Vec<_> = (0..STACKS)
        .map(|number| {
            let kind = if planted && number % 100 == 0 { "query" } else { "handle" };
            let name =
                dictionary.string(&format!("com.example.shop.module_{}.OrderService.{kind}_{number}", number % 977));
            let filename = dictionary.string(&format!("/srv/shop/src/module_{}/order_service.py", number % 977));
            let function = dictionary.function(Function { name, filename, ..Function::default() });
            let lines = [Line { function, line: i64::from(number % 500), ..Line::default() }];
            dictionary.location(Location { lines: &lines, ..Location::default() })
        })
        .collect();
    let samples = (0..STACKS)
        .map(|number| {
            let frames: Vec<_> = (0..DEPTH).map(|at| locations[((number + at * at * 31) % STACKS) as usize]).collect();
            let stack = dictionary.stack(&frames);
            let route = dictionary.attribute("route", Value::String(&format!("/cart/{}", number % 1000)), "");
            let attributes = dictionary.attribute_set(&[route]);
            Sample { stack, attributes, values: vec![10_000_000], ..Sample::default() }
        })
        .collect();
    let cpu = ValueType::new("cpu", "nanoseconds");
    let profile = Profile { sample_type: cpu.clone(), period_type: cpu, period: 1, samples, ..Profile::default() };
    let resource = vec![Attribute::string("service.name", "shop")];
    data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

/// As the exporter compresses a request.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn redactor(rules: Vec<RedactionRule>) -> ProfileRedactor {
    ProfileRedactor::new(RedactionSettings { default_patterns: true, rules, hash_key: vec![1; 32] })
}

fn run(what: &str, data: &ProfilesData, mut redactor: ProfileRedactor) {
    let timed = |call: &mut dyn FnMut()| {
        let begun = Instant::now();
        call();
        begun.elapsed().as_secs_f64() * 1e3
    };
    let mut first = 0.0;
    let (mut redaction, mut otlp_ms, mut pprof_ms) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let copy = UnredactedProfiles::new(data.clone());
        let mut copy = Some(copy);
        let mut kept = None;
        let took = timed(&mut || kept = copy.take().map(|copy| copy.redacted(&mut redactor)));
        let kept = kept.unwrap_or_default();
        if round == 0 {
            first = took;
            continue;
        }
        redaction.push(took);
        otlp_ms.push(timed(&mut || drop(black_box(gzip(&otlp::encode(&kept, Revision::One))))));
        pprof_ms.push(timed(&mut || drop(black_box(pprof::encode(&kept)))));
    }
    let percent = |encoded: &[f64]| {
        median(redaction.iter().zip(encoded).map(|(redaction, encoded)| 100.0 * redaction / encoded).collect())
    };
    println!(
        "{what:<44} {:>7.2} ms (first window {first:.1} ms); gzipped OTLP {:.0} ms, {:.1} %; gzipped pprof {:.0} ms, {:.1} %",
        median(redaction.clone()),
        median(otlp_ms.clone()),
        percent(&otlp_ms),
        median(pprof_ms.clone()),
        percent(&pprof_ms),
    );
}

fn main() {
    let data = profile(false);
    run("default patterns", &data, redactor(Vec::new()));
    run("default patterns and a rule set", &data, redactor(rules()));
    let data = profile(true);
    run("the same, 1 % of the functions match", &data, redactor(rules()));
    let dropped = vec![rule(&[("where", "function"), ("match", "query_[0-9]+"), ("action", "drop")])];
    run("1 % of the functions are dropped", &data, redactor(dropped));
    let equal = vec![
        rule(&[("where", "function"), ("match", "^.*query_[0-9]+$"), ("with", "query")]),
        rule(&[("where", "file"), ("match", "module_[0-9]+"), ("with", "module")]),
    ];
    run("all paths, 1 % of the functions become equal", &data, redactor(equal));
    let hashed = vec![rule(&[("where", "label_value"), ("key", "^route$"), ("action", "hash")])];
    run("every label", &data, redactor(hashed));
}
