//! One invalid request per rule, and one valid request without findings.

use prost::Message;

use super::*;
use crate::wire::otlp::any_value::Value;

fn any(text: &str) -> Option<wire::AnyValue> {
    Some(wire::AnyValue { value: Some(Value::StringValue(text.to_owned())) })
}

fn valid_request() -> wire::ProfilesData {
    let strings = ["", "samples", "count", "cpu", "nanoseconds", "main", "app.py", "route"];
    let sample = wire::Sample {
        stack_index: 1,
        attribute_indices: vec![1],
        link_index: 1,
        values: vec![3],
        ..Default::default()
    };
    let profile = wire::Profile {
        sample_type: Some(wire::ValueType { type_strindex: 1, unit_strindex: 2 }),
        period_type: Some(wire::ValueType { type_strindex: 3, unit_strindex: 4 }),
        period: 10_000_000,
        time_unix_nano: 1_700_000_000_000_000_000,
        duration_nano: 10_000_000_000,
        profile_id: vec![7; 16],
        samples: vec![sample],
        ..Default::default()
    };
    let scope = wire::Scope { name: "spanprof".into(), version: "1".into(), ..Default::default() };
    let service = wire::KeyValue { key: "service.name".into(), value: any("checkout"), key_strindex: 0 };
    wire::ProfilesData {
        resource_profiles: vec![wire::ResourceProfiles {
            resource: Some(wire::Resource { attributes: vec![service], ..Default::default() }),
            scope_profiles: vec![wire::ScopeProfiles {
                scope: Some(scope),
                profiles: vec![profile],
                ..Default::default()
            }],
            schema_url: "https://opentelemetry.io/schemas/1.44.0".into(),
        }],
        dictionary: Some(wire::ProfilesDictionary {
            mapping_table: vec![Default::default()],
            location_table: vec![
                Default::default(),
                wire::Location {
                    lines: vec![wire::Line { function_index: 1, line: 4, column: 0 }],
                    ..Default::default()
                },
            ],
            function_table: vec![
                Default::default(),
                wire::Function { name_strindex: 5, filename_strindex: 6, ..Default::default() },
            ],
            link_table: vec![Default::default(), wire::Link { trace_id: vec![1; 16], span_id: vec![2; 8] }],
            string_table: strings.map(str::to_owned).to_vec(),
            attribute_table: vec![
                Default::default(),
                wire::KeyValueAndUnit { key_strindex: 7, value: any("/cart"), unit_strindex: 0 },
            ],
            stack_table: vec![Default::default(), wire::Stack { location_indices: vec![1] }],
        }),
    }
}

fn findings(change: impl FnOnce(&mut wire::ProfilesData)) -> Vec<(Severity, String, String)> {
    let mut request = valid_request();
    change(&mut request);
    let found = check(&request.encode_to_vec(), &CheckSettings::default()).unwrap();
    found.into_iter().map(|CheckFinding { severity, path, sentence }| (severity, path, sentence)).collect()
}

/// The one finding after a modification, as `severity path: sentence`.
fn one(change: impl FnOnce(&mut wire::ProfilesData)) -> String {
    let found = findings(change);
    assert_eq!(found.len(), 1, "{found:#?}");
    let (severity, path, sentence) = &found[0];
    format!("{severity:?} {path}: {sentence}")
}

fn dictionary(request: &mut wire::ProfilesData) -> &mut wire::ProfilesDictionary {
    request.dictionary.as_mut().unwrap()
}

fn profile(request: &mut wire::ProfilesData) -> &mut wire::Profile {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0]
}

fn sample(request: &mut wire::ProfilesData) -> &mut wire::Sample {
    &mut profile(request).samples[0]
}

fn resource(request: &mut wire::ProfilesData) -> &mut Vec<wire::KeyValue> {
    &mut request.resource_profiles[0].resource.as_mut().unwrap().attributes
}

#[track_caller]
fn expect(finding: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| finding.contains(part)), "{finding}");
}

#[test]
fn a_valid_request_has_no_findings() {
    assert_eq!(findings(|_| {}), []);
}

#[test]
fn missing_and_nonempty_sentinels_are_errors() {
    expect(&one(|r| dictionary(r).mapping_table.clear()), &["Error dictionary.mapping_table", "is empty"]);
    expect(
        &one(|r| dictionary(r).function_table[0].start_line = 1),
        &["Error dictionary.function_table[0]", "must be the empty value"],
    );
    expect(&one(|r| dictionary(r).location_table[0].address = 1), &["Error dictionary.location_table[0]"]);
    expect(&one(|r| dictionary(r).stack_table[0].location_indices = vec![0]), &["Error dictionary.stack_table[0]"]);
    expect(&one(|r| dictionary(r).link_table[0].span_id = vec![0; 8]), &["Error dictionary.link_table[0]", "Parca"]);
    let found = findings(|r| r.dictionary = None);
    assert_eq!(found[0].1, "dictionary");
    assert!(found.iter().any(|(_, path, _)| path.ends_with("samples[0].stack_index")));
}

#[test]
fn indices_out_of_range_are_errors() {
    let path = "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]";
    let found = findings(|r| sample(r).stack_index = 99);
    assert_eq!((&found[0].0, &found[0].1[..]), (&Severity::Error, &format!("{path}.stack_index")[..]));
    assert_eq!(found[1].1, "dictionary.stack_table[1]", "the intended stack is an orphan");
    assert!(findings(|r| sample(r).link_index = -1)[0].1.ends_with("link_index"));
    assert!(findings(|r| dictionary(r).location_table[1].lines[0].function_index = 2)[0]
        .1
        .ends_with("lines[0].function_index"));
}

#[test]
fn duplicates_and_orphans_are_warnings() {
    expect(
        &one(|r| {
            dictionary(r).string_table.push("main".into());
            dictionary(r).function_table[1].system_name_strindex = 8;
        }),
        &["Warning dictionary.string_table[8]", "equals entry 5"],
    );
    expect(
        &one(|r| dictionary(r).string_table.push("extra".into())),
        &["Warning dictionary.string_table[8]", "Nothing refers"],
    );
    let many = findings(|r| dictionary(r).string_table.extend((0..9).map(|n| format!("extra {n}"))));
    assert_eq!(many.len(), REPORTED_PER_RULE);
    expect(&many.last().unwrap().2, &["(4 more like this)"]);
}

#[test]
fn samples_must_have_one_of_three_shapes() {
    expect(&one(|r| sample(r).values.clear()), &["Error", "samples[0]: There are neither values nor timestamps"]);
    expect(&one(|r| sample(r).values = vec![1, 2]), &["Error", "2 values without timestamps"]);
    let start = 1_700_000_000_000_000_000;
    expect(
        &one(|r| sample(r).timestamps_unix_nano = vec![start, start + 1]),
        &["Error", "1 values for 2 timestamps; the numbers must be equal"],
    );
    expect(
        &one(|r| {
            sample(r).values = vec![1, 2];
            sample(r).timestamps_unix_nano = vec![start, start + 1];
        }),
        &["Warning", "Pyroscope rejects the profile"],
    );
    expect(&one(|r| sample(r).values = vec![0]), &["Warning", "The value is 0"]);
    let mixed = one(|r| {
        let other = wire::Sample { timestamps_unix_nano: vec![start], ..Default::default() };
        profile(r).samples.push(other);
    });
    expect(&mixed, &["Warning", "samples[1]: Samples of one profile should all have the same shape"]);
}

#[test]
fn two_samples_with_the_same_identity_are_a_warning() {
    let found = one(|r| {
        let again = sample(r).clone();
        profile(r).samples.push(again);
    });
    expect(&found, &["Warning", "samples[1]: Stack, attributes and link equal those of sample 0"]);
}

#[test]
fn windows_outside_the_ingestion_range_are_warnings() {
    let body = valid_request().encode_to_vec();
    let start = 1_700_000_000_000_000_000;
    let checked = |now| check(&body, &CheckSettings { now_unix_nano: Some(now), ..Default::default() }).unwrap();
    assert_eq!(checked(start + 60_000_000_000), []);
    expect(&checked(start + 3_660_000_000_000)[0].sentence, &["61 minutes ago"]);
    expect(&checked(start - 660_000_000_000)[0].sentence, &["in 11 minutes"]);
    expect(&one(|r| profile(r).time_unix_nano = 0), &["Warning", "time_unix_nano: The window's start is missing"]);
    expect(&one(|r| profile(r).duration_nano = 0), &["Warning", "no duration"]);
    expect(&one(|r| profile(r).duration_nano = u64::MAX), &["Error", "exceeds 64 bits"]);
    let outside = one(|r| {
        sample(r).values.clear();
        sample(r).timestamps_unix_nano = vec![start - 2_000_000_000];
    });
    expect(&outside, &["Error", "samples[0].timestamps_unix_nano", "outside the window"]);
}

#[test]
fn attributes_need_unique_inline_keys() {
    let twice = |r: &mut wire::ProfilesData| {
        let again = wire::KeyValueAndUnit { key_strindex: 7, value: any("/pay"), unit_strindex: 0 };
        dictionary(r).attribute_table.push(again);
        sample(r).attribute_indices = vec![1, 2];
    };
    expect(&one(twice), &["Error", "samples[0].attribute_indices", "\"route\" occurs more than once"]);
    expect(&one(|r| sample(r).attribute_indices.push(0)), &["Error", "attribute_indices[1]", "empty attribute"]);
    let twice = |r: &mut wire::ProfilesData| {
        let again = resource(r)[0].clone();
        resource(r).push(again);
    };
    expect(&one(twice), &["Error resource_profiles[0].resource.attributes[1]", "occurs more than once"]);
    let reference = |r: &mut wire::ProfilesData| {
        resource(r).push(wire::KeyValue { key_strindex: 7, value: any("x"), key: String::new() });
    };
    expect(&one(reference), &["Warning resource_profiles[0].resource.attributes[1]", "Write key and value inline"]);
    let both = |r: &mut wire::ProfilesData| {
        resource(r).push(wire::KeyValue { key_strindex: 7, value: any("x"), key: "k".into() });
    };
    expect(&findings(both)[0].2, &["only one is allowed"]);
    expect(&one(|r| resource(r).clear()), &["Warning", "no service.name"]);
    let pid = |text| {
        move |r: &mut wire::ProfilesData| {
            resource(r).push(wire::KeyValue { key: "process.pid".into(), value: any(text), key_strindex: 0 });
        }
    };
    expect(&one(pid("main")), &["Warning resource_profiles[0].resource.attributes", "process.pid must be an integer"]);
    assert!(findings(pid("42")).is_empty());
    let no_schema = |r: &mut wire::ProfilesData| r.resource_profiles[0].schema_url.clear();
    expect(&one(no_schema), &["Warning resource_profiles[0].schema_url", "no schema_url"]);
    expect(&one(|r| r.resource_profiles[0].resource = None), &["Warning resource_profiles[0].resource", "missing"]);
    expect(
        &one(|r| r.resource_profiles[0].scope_profiles[0].scope = None),
        &["Warning", "scope: The scope is missing"],
    );
}

#[test]
fn types_periods_and_ids_that_receivers_reject_are_found() {
    expect(
        &one(|r| dictionary(r).string_table[1] = "cpu-samples".into()),
        &["Warning", "sample_type", "contains \"-\""],
    );
    expect(&one(|r| profile(r).period = 0), &["Warning", "period: Period or period type is missing"]);
    expect(&one(|r| profile(r).period = -1), &["Error", "negative"]);
    assert!(findings(|r| profile(r).sample_type = None)[0].2.contains("The sample type is missing"));
    expect(&one(|r| profile(r).profile_id = vec![1; 3]), &["Error", "profile_id: The id has 3 bytes"]);
    let twice = |r: &mut wire::ProfilesData| {
        let again = profile(r).clone();
        r.resource_profiles[0].scope_profiles[0].profiles.push(again);
    };
    expect(&one(twice), &["Error", "profiles[1].profile_id", "ids must be unique"]);
    expect(&one(|r| profile(r).original_payload = vec![1].into()), &["Error", "set together"]);
    expect(&one(|r| dictionary(r).link_table[1].trace_id = vec![1; 3]), &["Error dictionary.link_table[1]", "3 bytes"]);
    expect(
        &one(|r| dictionary(r).link_table[1].trace_id.clear()),
        &["Error dictionary.link_table[1]", "0 bytes", "Pyroscope 1.20 to 2.0"],
    );
}

#[test]
fn limits_of_receivers_are_warnings() {
    let labels = |r: &mut wire::ProfilesData| {
        for n in 0..29 {
            dictionary(r).string_table.push(format!("key {n}"));
            let attribute = wire::KeyValueAndUnit { key_strindex: 8 + n, value: any("x"), unit_strindex: 0 };
            dictionary(r).attribute_table.push(attribute);
        }
        sample(r).attribute_indices = (1..31).collect();
    };
    expect(&one(labels), &["Warning", "33 labels including those of the resource; Pyroscope accepts 30"]);
    let none = findings(|r| profile(r).samples.clear());
    assert!(none.iter().any(|(_, _, sentence)| sentence.contains("has no samples; Parca rejects it")), "{none:#?}");
    let deep = one(|r| dictionary(r).stack_table[1].location_indices = vec![1; 1001]);
    expect(
        &one(|r| dictionary(r).location_table[1].lines[0].line = -1),
        &["Error dictionary.location_table[1].lines[0]"],
    );
    expect(&deep, &["Warning dictionary.stack_table[1].location_indices", "1001 locations"]);
    // Under Miri, 4 MiB take an hour.
    if !cfg!(miri) {
        let big = one(|r| dictionary(r).string_table[5] = "x".repeat(4 << 20));
        expect(&big, &["Warning", "gRPC receivers reject 4 MiB"]);
    }
}

#[test]
fn malformed_bytes_are_a_decode_error() {
    let error = check(&[0x0a, 0x05, 0x01], &CheckSettings::default()).unwrap_err().to_string();
    assert_eq!(error, "cannot read OTLP profiles at resource_profiles[0]: expected 5 more bytes, got 1");
    assert!(check(b"hello", &CheckSettings::default()).is_err());
}
