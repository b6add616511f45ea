//! pprof: encoded profiles decode to equal ones, and a round trip through OTLP is lossless.

use proptest::prelude::*;
use spanprof_profile::encode::pprof::names::{COMMENT, OWN_CODE};
use spanprof_profile::encode::{pprof, text};
use spanprof_profile::*;
use spanprof_read::decode::{self, DecodeLimits, Format};
use spanprof_read::query::{top, Granularity};

use crate::random::{profiles_data, ALL, PPROF};
use crate::stacks::stack_of;

fn config() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 1 } else { 40 }, failure_persistence: None, ..ProptestConfig::default() }
}

fn decoded(file: &[u8]) -> ProfilesData {
    decode::pprof::decode(file, &DecodeLimits::default()).expect("encoded profiles are decodable")
}

/// Removes the settings of the file and the empty samples that the encoder adds.
fn without_settings(mut data: ProfilesData) -> ProfilesData {
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        profile.attributes = AttributeSetId::EMPTY;
        // Samples that only other types have.
        profile.samples.retain(|sample| !sample.values.is_empty());
    }
    data
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn encoded_profiles_decode_to_equal_ones(data in profiles_data(PPROF)) {
        let again = decoded(&pprof::encode(&data));
        prop_assert_eq!(text::encode(&without_settings(again)), text::encode(&data));
    }

    #[test]
    fn pprof_is_detected_by_content(data in profiles_data(ALL)) {
        for file in [pprof::encode(&data), pprof::encode_uncompressed(&data)] {
            prop_assert_eq!(decode::any(&file, &DecodeLimits::default()).unwrap().0, Format::Pprof);
        }
    }
}

fn one_sample(profile: Profile) -> ProfilesData {
    ProfilesData {
        resources: vec![ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() }],
        ..ProfilesData::default()
    }
}

#[test]
fn counted_periods_are_written_as_counts_and_nanoseconds() {
    let mut profile = Profile {
        sample_type: ValueType::new("samples", "count"),
        period_type: ValueType::new("cpu", "nanoseconds"),
        period: 10_000_000,
        samples: vec![Sample { values: vec![3], exact_value: 31_000_001, ..Sample::default() }],
        ..Profile::default()
    };
    let read = decoded(&pprof::encode(&one_sample(profile.clone())));
    let (_, counted) = read.profiles().next().unwrap();
    assert_eq!((counted.type_name(), counted.unit()), ("cpu", "nanoseconds"));
    assert_eq!(counted.samples[0].values, [3]);
    assert_eq!(counted.weight(&counted.samples[0]), 30_000_000, "derived from the period when nothing was measured");
    profile.exact_type = Some(ValueType::new("cpu", "nanoseconds"));
    let read = decoded(&pprof::encode(&one_sample(profile)));
    let (_, counted) = read.profiles().next().unwrap();
    assert_eq!(counted.weight(&counted.samples[0]), 31_000_001, "measured");
}

#[test]
fn times_beyond_the_range_of_pprof_are_clamped() {
    let max = i64::MAX as u64;
    for (time_unix_nano, duration_nano) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX - 5, 9), (max, max)] {
        let profile = Profile {
            sample_type: ValueType::new("wall", "nanoseconds"),
            samples: vec![Sample { values: vec![5], ..Sample::default() }],
            time_unix_nano,
            duration_nano,
            ..Profile::default()
        };
        let read = decoded(&pprof::encode(&one_sample(profile.clone())));
        let (_, read) = read.profiles().next().unwrap();
        assert_eq!(read.time_unix_nano, time_unix_nano.min(max), "{profile:?}");
        assert_eq!(read.duration_nano, profile.end_unix_nano().saturating_sub(time_unix_nano).min(max));
    }
}

#[test]
fn services_of_one_file_are_distinguished_by_labels() {
    let profile = Profile {
        sample_type: ValueType::new("wall", "nanoseconds"),
        samples: vec![Sample { values: vec![5], ..Sample::default() }],
        ..Profile::default()
    };
    let mut data = one_sample(profile);
    data.resources[0].resource = vec![Attribute::string("service.name", "a"), Attribute::string("host.name", "h")];
    let mut other = data.resources[0].clone();
    other.resource[0] = Attribute::string("service.name", "b");
    data.resources.push(other);
    let read = decoded(&pprof::encode(&data));
    assert_eq!(read.resources[0].resource, [Attribute::string("host.name", "h")]);
    let services: Vec<String> = read.resources[0].profiles[0]
        .samples
        .iter()
        .flat_map(|sample| read.dictionary.attributes_of(sample.attributes).map(|label| label.value.to_string()))
        .collect();
    assert_eq!(services, ["a", "b"]);
}

#[test]
fn samples_with_one_timestamp_keep_it_and_are_not_merged() {
    let times = [1_700_000_000_000_000_001u64, 1_700_000_000_000_000_002];
    let sample = |time: u64| Sample { values: vec![7], timestamps_unix_nano: vec![time], ..Sample::default() };
    let plain = Sample { values: vec![5], ..Sample::default() };
    let samples = vec![sample(times[0]), sample(times[1]), plain.clone(), plain];
    let data =
        one_sample(Profile { sample_type: ValueType::new("wall", "nanoseconds"), samples, ..Profile::default() });
    let again = decoded(&pprof::encode(&data));
    let (_, profile) = again.profiles().next().unwrap();
    let found: Vec<_> =
        profile.samples.iter().map(|sample| (sample.total(), &sample.timestamps_unix_nano[..])).collect();
    assert_eq!(found, [(7, &times[..1]), (7, &times[1..]), (10, &[][..])]);
}

#[test]
fn prefixes_of_own_code_that_match_no_function_are_ignored() {
    let own_functions = |prefixes: &str| {
        let mut data = ProfilesData::default();
        let d = &mut data.dictionary;
        let stack = stack_of(d, [("loads", "/opt/lib/json.rb", 0, 1), ("main", "/srv/app.py", 0, 1)]);
        let comment = d.attribute(COMMENT, Value::String(&format!("duty_cycle=1s/2s; {OWN_CODE}{prefixes}")), "");
        let attributes = d.attribute_set(&[comment]);
        let samples = vec![Sample { stack, values: vec![5], ..Sample::default() }];
        let profile =
            Profile { sample_type: ValueType::new("wall", "count"), samples, attributes, ..Profile::default() };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        let rows = top(&decoded(&pprof::encode(&data)), "wall", Granularity::Function).rows;
        rows.into_iter().filter(|row| row.own > 0).map(|row| row.location.function).collect::<Vec<_>>()
    };
    assert_eq!(own_functions("/opt/lib"), ["loads"]);
    assert_eq!(own_functions("/srv,shop/"), ["main"]);
    // Redaction may have changed the paths.
    assert_eq!(own_functions("/opt/shop"), ["main"], "by the rules");
}
