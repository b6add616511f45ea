//! Properties of redacted profiles: totals, merging, idempotence, no removed text in any encoding, time on hostile input.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::profiles::NO_FRAMES;
use super::*;
use crate::encode::otlp::{self, Revision};
use crate::encode::{folded, pprof};
use crate::transform::{tree, Merged};
use crate::*;

fn rule(pairs: &[(&str, &str)]) -> RedactionRule {
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect();
    RedactionRule::from_pairs(&pairs).unwrap()
}

fn redactor(rules: Vec<RedactionRule>) -> ProfileRedactor {
    ProfileRedactor::new(RedactionSettings { default_patterns: true, rules, hash_key: b"key".to_vec() })
}

/// A profile with one sample per (functions from the leaf, label, value). Files are those of the functions.
fn profile(samples: &[(Vec<String>, [String; 2], i64)]) -> ProfilesData {
    let mut data = ProfilesData::default();
    let dictionary = &mut data.dictionary;
    let mut sample = |(functions, [key, text], value): &(Vec<String>, [String; 2], i64)| {
        let mut frame = |(index, function): (usize, &String)| {
            let name = dictionary.string(function);
            let filename = dictionary.string(&format!("/users/ann/{function}.py"));
            let function = dictionary.function(Function { name, filename, ..Function::default() });
            let lines = [Line { function, line: index as i64 % 2, ..Line::default() }];
            dictionary.location(Location { lines: &lines, ..Location::default() })
        };
        let locations: Vec<_> = functions.iter().enumerate().map(&mut frame).collect();
        let stack = dictionary.stack(&locations);
        let label = dictionary.attribute(key, Value::String(text), "");
        let attributes = dictionary.attribute_set(&[label]);
        Sample { stack, attributes, values: vec![*value], exact_value: value * 7, ..Sample::default() }
    };
    // Profiles of a session have each stack and label set once.
    let mut merged = Merged::default();
    samples.iter().map(&mut sample).for_each(|sample| merged.add(sample));
    let samples = merged.into_sorted_profile().samples;
    let cpu = ValueType::new("cpu", "nanoseconds");
    let profile = Profile { sample_type: cpu.clone(), period_type: cpu, samples, ..Profile::default() };
    let resource = vec![Attribute::string("service.name", "shop")];
    data.resources.push(ResourceProfiles { resource, profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

fn samples(data: &ProfilesData) -> &[Sample] {
    &data.resources[0].profiles[0].samples
}

fn sample(functions: &[&str], label: [&str; 2], value: i64) -> (Vec<String>, [String; 2], i64) {
    (functions.iter().map(|name| (*name).to_owned()).collect(), label.map(str::to_owned), value)
}

/// Every text in the dictionary, with its number of uses.
fn texts(data: &ProfilesData) -> Vec<String> {
    data.dictionary.strings().map(|(_, text)| text.to_owned()).collect()
}

/// Everything that a destination may receive, as text.
fn encodings(data: &ProfilesData) -> String {
    let tree = tree(data, "cpu");
    let bytes = [
        otlp::encode(data, Revision::One),
        pprof::encode_uncompressed(data),
        folded::encode(&tree).into_bytes(),
        format!("{data:?}").into_bytes(),
    ];
    bytes.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

#[test]
fn two_hundred_planted_texts_are_in_no_encoding() {
    let rules = vec![
        rule(&[("where", "function"), ("match", "marker-[0-9]+")]),
        rule(&[("where", "file"), ("match", "/users/[^/]+/"), ("action", "strip_prefix")]),
        rule(&[("where", "file"), ("match", "marker-[0-9]+"), ("with", "X")]),
        rule(&[("where", "label_value"), ("key", "^user$"), ("action", "hash")]),
        rule(&[("where", "label_key"), ("match", "marker"), ("action", "drop")]),
        rule(&[("where", "resource"), ("key", "^owner$"), ("action", "drop")]),
    ];
    let mut planted = Vec::new();
    for number in 0..50 {
        let function = format!("query_marker-{number}");
        planted.push(sample(&[&function, "main"], ["password", &format!("marker-{number}")], 1));
        planted.push(sample(&[&function, "main"], ["user", &format!("marker-{number}")], 1));
        planted.push(sample(&["main"], [&format!("marker_{number}"), "x"], 1));
        planted.push(sample(&["main"], ["dsn", &format!("db://u:marker-{number}@h?token=marker-{number}")], 1));
    }
    let mut data = profile(&planted);
    data.resources[0].resource.push(Attribute::string("owner", "marker"));
    data.resources[0].resource.push(Attribute::string("process.command_line", "shop --api-key marker --token=marker"));
    assert!(encodings(&data).matches("marker").count() > 400);
    let redacted = UnredactedProfiles::new(data).redacted_with_resources(&mut redactor(rules));
    let encoded = encodings(&redacted);
    assert_eq!(encoded.matches("marker").count(), 0, "{:?}", texts(&redacted));
    assert_eq!(encoded.matches("/users/").count(), 0);
    assert_eq!(samples(&redacted).iter().map(Sample::total).sum::<i64>(), 200);
    let resource = &redacted.resources[0].resource;
    assert_eq!(resource[1], Attribute::string("process.command_line", "shop --api-key [REDACTED] --token=[REDACTED]"));
    assert_eq!(resource.len(), 2);
}

#[test]
fn functions_and_labels_that_become_equal_are_one_sample() {
    let samples_before = [sample(&["q_1", "main"], ["user", "ann"], 3), sample(&["q_2", "main"], ["user", "bob"], 4)];
    let rules = vec![
        rule(&[("where", "function, file"), ("match", "q_[0-9]"), ("with", "q")]),
        rule(&[("where", "label_value"), ("key", "user"), ("with", "somebody")]),
    ];
    let data = UnredactedProfiles::new(profile(&samples_before)).redacted(&mut redactor(rules));
    let [one] = samples(&data) else { panic!("{:?}", samples(&data)) };
    assert_eq!((one.total(), one.exact_value), (7, 49));
    assert_eq!(folded::encode(&tree(&data, "cpu")), "main;q 7\n");
}

#[test]
fn a_function_with_a_redacted_name_has_no_address_by_which_symbols_name_it() {
    let mut data = profile(&[sample(&["unseal_vault", "main"], ["region", "eu"], 7)]);
    let ProfilesData { dictionary, resources } = &mut data;
    let stack = &mut resources[0].profiles[0].samples[0].stack;
    let mapping = dictionary.mapping(Mapping { memory_limit: 0x9000, ..Mapping::default() });
    let native = |dictionary: &mut Dictionary, function: LocationId| {
        let lines = dictionary.get_location(function).lines.to_vec();
        dictionary.location(Location { mapping, address: 0x1000, lines: &lines, ..Location::default() })
    };
    let functions = dictionary.get_stack(*stack).to_vec();
    let locations: Vec<_> = functions.into_iter().map(|function| native(dictionary, function)).collect();
    *stack = dictionary.stack(&locations);
    let rule = rule(&[("where", "function"), ("match", ".*vault"), ("action", "replace")]);
    let redacted = UnredactedProfiles::new(data).redacted(&mut redactor(vec![rule]));
    let stack = redacted.dictionary.get_stack(samples(&redacted)[0].stack);
    let addresses: Vec<_> = stack.iter().map(|id| redacted.dictionary.get_location(*id).address).collect();
    assert_eq!(addresses, [0, 0x1000]);
}

#[test]
fn dropped_functions_leave_their_callers_and_callees() {
    let before = [sample(&["leaf", "secret_1", "main"], ["a", "b"], 3), sample(&["secret_2"], ["a", "b"], 4)];
    let rules = vec![rule(&[("where", "function"), ("match", "^secret_"), ("action", "drop")])];
    let data = UnredactedProfiles::new(profile(&before)).redacted(&mut redactor(rules));
    let folded = folded::encode(&tree(&data, "cpu"));
    let mut lines: Vec<_> = folded.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[redacted] 4", "main;leaf 3"]);
    assert!(!texts(&data).iter().any(|text| text.contains("secret")));
}

#[test]
fn hashes_are_equal_for_equal_texts_and_keys_only() {
    let hash = |key: &[u8], text: &str| {
        let rules = vec![rule(&[("where", "label_value"), ("action", "hash")])];
        let settings = RedactionSettings { default_patterns: true, rules, hash_key: key.to_vec() };
        let pair = ProfileRedactor::new(settings).pair(RedactionTarget::LabelValue, "user", text);
        pair.unwrap().1
    };
    assert_eq!(hash(b"a", "ann"), hash(b"a", "ann"));
    assert_ne!(hash(b"a", "ann"), hash(b"b", "ann"));
    assert_ne!(hash(b"a", "ann"), hash(b"a", "bob"));
    // HMAC-SHA-256, test case 2 of RFC 4231.
    assert_eq!(hash(b"Jefe", "what do ya want for nothing?"), "5bdcc146bf60754e");
}

#[test]
fn a_rule_for_a_secret_key_replaces_the_default_pattern() {
    let rules = vec![rule(&[("where", "label_value"), ("key", "^session_token$"), ("action", "hash")])];
    let mut redactor = redactor(rules);
    let mut value = |key: &str| redactor.pair(RedactionTarget::LabelValue, key, "x").unwrap().1;
    assert_eq!(value("session_token").len(), 16);
    assert_eq!(value("token"), REDACTED);
}

#[test]
fn paths_below_a_directory_become_relative_to_it() {
    let rules = vec![rule(&[("where", "file"), ("action", "relativize"), ("with", "/srv/app/")])];
    let mut redactor = redactor(rules);
    let mut path = |path: &str| redactor.pair(RedactionTarget::File, "", path).unwrap().1;
    assert_eq!(path("/srv/app/src/a.py"), "src/a.py");
    assert_eq!(path("file:///srv/app/src/a.mjs"), "src/a.mjs");
    assert_eq!(path("/srv/application/a.py"), "/srv/application/a.py");
    assert_eq!(path("/srv/app"), "/srv/app");
}

#[test]
fn the_service_name_on_samples_is_that_of_the_resource() {
    let data = profile(&[sample(&["main"], ["service.name", "shop"], 1)]);
    let rules = vec![rule(&[("where", "label_value, resource"), ("key", "service.name"), ("action", "hash")])];
    let data = UnredactedProfiles::new(data).redacted_with_resources(&mut redactor(rules));
    let label = data.dictionary.attributes_of(samples(&data)[0].attributes).next().unwrap();
    assert_eq!(label.value.to_string(), data.resources[0].service_name());
    assert_ne!(data.resources[0].service_name(), "shop");
}

#[test]
fn labels_whose_keys_become_equal_keep_one_value() {
    let mut data = ProfilesData::default();
    let ids = ["user_1", "user_2"].map(|key| data.dictionary.attribute(key, Value::String(key), ""));
    let attributes = data.dictionary.attribute_set(&ids);
    let samples = vec![Sample { attributes, values: vec![1], ..Sample::default() }];
    let profiles = vec![Profile { samples, ..Profile::default() }];
    data.resources.push(ResourceProfiles { profiles, ..ResourceProfiles::default() });
    let rules = vec![rule(&[("where", "label_key"), ("match", "_[0-9]"), ("with", "")])];
    let data = UnredactedProfiles::new(data).redacted(&mut redactor(rules));
    let labels: Vec<_> = data.dictionary.attributes_of(self::samples(&data)[0].attributes).map(|l| l.key).collect();
    assert_eq!(labels, ["user"]);
}

#[test]
fn an_ordinary_profile_keeps_its_dictionary() {
    let before = profile(&[sample(&["validate_password", "main"], ["route", "/token"], 1)]);
    let expected = format!("{before:?}");
    assert_eq!(format!("{:?}", UnredactedProfiles::new(before).redacted(&mut redactor(Vec::new()))), expected);
}

/// A backtracking engine needs more than 2^10000 steps for these.
#[test]
fn hostile_patterns_and_texts_take_linear_time() {
    let text = format!("{}!", "a".repeat(10_000));
    for pattern in ["^(a+)+$", "^(a|a)*$", "(a*)*b", "(.*)*x$"] {
        let mut redactor = redactor(vec![rule(&[("where", "function"), ("match", pattern), ("with", "")])]);
        let pair = redactor.pair(RedactionTarget::Function, "", &text);
        assert!(pair.is_some(), "{pattern}");
    }
    for hostile in [
        "password=",
        "eyJ",
        "://",
        "\"token\":\"\\",
        "bearer ",
        "-----BEGIN PRIVATE KEY",
        "select '",
        "token={",
        "<token>",
        "--token ",
        "/*",
        "digest a=",
        "\\\"token\\\":",
    ] {
        let text = hostile.repeat(2_000);
        redactor(Vec::new()).pair(RedactionTarget::LabelValue, "a", &text).unwrap();
    }
}

#[test]
fn the_cache_is_bounded_and_changes_no_verdict() {
    let mut redactor = redactor(vec![rule(&[("where", "function"), ("match", "7$"), ("action", "drop")])]);
    for round in 0..2 {
        for number in 0..200_000 {
            let kept = redactor.pair(RedactionTarget::Function, "", &number.to_string()).is_some();
            assert_eq!(kept, number % 10 != 7, "{round} {number}");
        }
    }
}

/// Totals by folded stack after the rule `q_[0-9]` → `q`, computed without the redactor.
fn expected(samples: &[(Vec<String>, [String; 2], i64)]) -> BTreeMap<String, i64> {
    let mut totals = BTreeMap::new();
    for (functions, _, value) in samples {
        let names = functions.iter().rev().map(|name| if name.starts_with("q_") { "q" } else { name.as_str() });
        *totals.entry(names.collect::<Vec<_>>().join(";")).or_default() += value;
    }
    totals
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn totals_stay_and_identities_are_distinct_and_a_second_pass_changes_nothing(
        given in prop::collection::vec(
            (
                prop::collection::vec("(q_[0-9]|[a-c])", 1..5),
                ["(token|user|zone)", "[a-z0-9=: ]{0,12}"],
                1i64..1000,
            ),
            1..40,
        ),
    ) {
        let rules = || vec![
            rule(&[("where", "function"), ("match", "^q_[0-9]$"), ("with", "q")]),
            rule(&[("where", "file"), ("match", "^/users/[^/]+/"), ("action", "strip_prefix")]),
            rule(&[("where", "label_key"), ("match", "^zone$"), ("action", "drop")]),
        ];
        let once = UnredactedProfiles::new(profile(&given)).redacted(&mut redactor(rules()));
        let folded = folded::encode(&tree(&once, "cpu"));
        // A stack has several lines where its files differ.
        let mut totals: BTreeMap<String, i64> = BTreeMap::new();
        for (stack, value) in folded.lines().map(|line| line.rsplit_once(' ').unwrap()) {
            *totals.entry(stack.to_owned()).or_default() += value.parse::<i64>().unwrap();
        }
        prop_assert_eq!(totals, expected(&given));
        let exact: i64 = samples(&once).iter().map(|sample| sample.exact_value).sum();
        prop_assert_eq!(exact, given.iter().map(|(_, _, value)| value * 7).sum::<i64>());
        let mut identities: Vec<_> = samples(&once).iter().map(|s| (s.stack, s.attributes, s.link)).collect();
        identities.sort_unstable();
        identities.dedup();
        prop_assert_eq!(identities.len(), samples(&once).len());
        let shown = format!("{once:?}");
        let twice = UnredactedProfiles::new(once).redacted(&mut redactor(rules()));
        prop_assert_eq!(format!("{twice:?}"), shown);
    }

    #[test]
    fn exchanged_equal_and_dropped_names_give_the_profile_of_a_program_with_the_new_names(
        given in prop::collection::vec(
            (prop::collection::vec("([a-c]_[a-c]|x_[0-3]|d_[0-1])", 1..6), ["(user|zone)", "[a-b]"], 1i64..1000),
            1..60,
        ),
    ) {
        let rules = vec![
            rule(&[("where", "function, file"), ("match", "([a-c])_([a-c])"), ("with", "${2}_$1")]),
            rule(&[("where", "function, file"), ("match", "x_[0-3]"), ("with", "a_a")]),
            rule(&[("where", "function"), ("match", "^d_"), ("action", "drop")]),
            rule(&[("where", "label_value"), ("match", "^[ab]$"), ("with", "v")]),
        ];
        let renamed = |name: &String| match name.split_at(2) {
            ("x_", _) => Some("a_a".to_owned()),
            ("d_", _) => None,
            (first, second) => Some(format!("{second}_{}", &first[..1])),
        };
        let new_names: Vec<_> = given.iter().map(|(functions, [key, _], value)| {
            let names: Vec<_> = functions.iter().map(renamed).collect();
            (names, [key.clone(), "v".to_owned()], *value)
        }).collect();
        let redacted = UnredactedProfiles::new(profile(&given)).redacted(&mut redactor(rules));
        let decoded_lines = lines(&redacted);
        let mut expected: BTreeMap<String, i64> = BTreeMap::new();
        for (names, [key, value], total) in &new_names {
            // The line of a frame is its place in the stack, modulo 2; see `profile`.
            let frames = names.iter().enumerate().filter_map(|(index, name)| Some((name.as_ref()?, index % 2)));
            let frames: Vec<_> = frames.map(|(name, line)| format!("{name}:/users/ann/{name}.py:{line}")).collect();
            let stack = if frames.is_empty() { format!("{NO_FRAMES}::0") } else { frames.join(";") };
            *expected.entry(format!("{stack} {key}={value}")).or_default() += total;
        }
        let expected: Vec<_> = expected.into_iter().collect();
        prop_assert_eq!(decoded_lines, expected);
    }
}

/// Samples as `name:file:line;… key=value` from the leaf, with their totals; fails on a repeated line.
fn lines(data: &ProfilesData) -> Vec<(String, i64)> {
    let dictionary = &data.dictionary;
    let line = |sample: &Sample| {
        let frames = dictionary.get_stack(sample.stack).iter().map(|location| {
            let line = dictionary.get_location(*location).lines[0];
            let function = dictionary.get_function(line.function);
            let (name, file) = (dictionary.get_string(function.name), dictionary.get_string(function.filename));
            format!("{name}:{file}:{}", line.line)
        });
        let stack = frames.collect::<Vec<_>>().join(";");
        let labels = dictionary.attributes_of(sample.attributes).map(|it| format!("{}={}", it.key, it.value));
        (format!("{stack} {}", labels.collect::<Vec<_>>().join(",")), sample.total())
    };
    let mut lines: Vec<_> = samples(data).iter().map(line).collect();
    lines.sort();
    assert!(lines.windows(2).all(|pair| pair[0].0 != pair[1].0), "a sample is repeated: {lines:?}");
    lines
}
