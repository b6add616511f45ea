//! OTLP: encoded profiles decode to equal ones, obey the signal's rules, and split without loss.

use std::collections::HashSet;

use proptest::prelude::*;
use spanprof_profile::encode::otlp::{
    encode, encode_split, has_values, split_encoded, Revision, MAX_SAMPLES_PER_PROFILE,
};
use spanprof_profile::encode::text;
use spanprof_profile::transform::merge;
use spanprof_profile::*;
use spanprof_read::check::{check, CheckSettings, Severity};
use spanprof_read::decode::{self, DecodeLimits, Format};

use crate::random::{profiles_data, ALL};

fn config() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 1 } else { 40 }, failure_persistence: None, ..ProptestConfig::default() }
}

fn decoded(body: &[u8]) -> ProfilesData {
    decode::otlp::decode(body, &DecodeLimits::default()).expect("encoded profiles are decodable")
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn encoded_profiles_decode_to_equal_ones(data in profiles_data(ALL)) {
        let body = encode(&data, Revision::One);
        let again = decoded(&body);
        prop_assert_eq!(text::encode(&again), text::encode(&data));
        let second = encode(&again, Revision::One);
        prop_assert_eq!(second.len(), body.len());
        prop_assert_eq!(encode(&decoded(&second), Revision::One), second, "the encoding is stable");
    }

    #[test]
    fn encoded_profiles_violate_no_rule_of_the_signal(data in profiles_data(ALL)) {
        let findings = check(&encode(&data, Revision::One), &CheckSettings::default()).unwrap();
        // The random samples of one profile differ in shape, which is only a warning.
        let violations: Vec<_> = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error || finding.path.starts_with("dictionary"))
            .collect();
        prop_assert!(violations.is_empty(), "{violations:#?}");
    }

    #[test]
    fn otlp_is_detected_by_content(data in profiles_data(ALL)) {
        let (format, again) = decode::any(&encode(&data, Revision::One), &DecodeLimits::default()).unwrap();
        prop_assert_eq!(format, Format::Otlp);
        prop_assert_eq!(text::encode(&again), text::encode(&data));
    }

    #[test]
    fn profiles_written_as_json_decode_to_equal_ones(data in profiles_data(ALL)) {
        let json = spanprof_read::otlp_json::encode(&data).unwrap();
        prop_assert_eq!(text::encode(&decoded(json.as_bytes())), text::encode(&decoded(&encode(&data, Revision::One))));
    }

    #[test]
    fn parts_are_within_the_limit_and_merge_to_the_whole(data in profiles_data(ALL), max_bytes in 600usize..4000) {
        let whole = text::encode(&without_ids(merge([&data])));
        let count = data.sample_count();
        let requests = encode_split(data, Revision::One, max_bytes);
        prop_assert_eq!(requests.iter().map(|request| request.samples).sum::<usize>(), count);
        let mut parts = Vec::new();
        for request in &requests {
            prop_assert!(request.body.len() <= max_bytes || request.samples == 1);
            parts.push(decoded(&request.body));
            prop_assert_eq!(parts.last().map(ProfilesData::sample_count), Some(request.samples));
        }
        prop_assert_eq!(text::encode(&without_ids(merge(&parts))), whole);
    }

    #[test]
    fn a_half_is_encoded_like_its_own_samples(data in profiles_data(ALL)) {
        for half in split_encoded(&encode(&data, Revision::One)).into_iter().flatten() {
            let findings = check(&half, &CheckSettings::default()).unwrap();
            prop_assert!(!findings.iter().any(|finding| finding.path.starts_with("dictionary")), "{findings:#?}");
            // Attributes with local roots are copied whole.
            let has_trees = data.dictionary.links().iter().any(|span| span.is_below());
            prop_assert!(has_trees || encode(&decoded(&half), Revision::One).len() == half.len());
        }
    }

    #[test]
    fn an_encoded_body_splits_until_one_sample_is_left(data in profiles_data(ALL)) {
        let whole = text::encode(&without_ids(merge([&data])));
        let mut pending = vec![encode(&data, Revision::One)];
        let mut singles = Vec::new();
        let mut ids = HashSet::new();
        while let Some(body) = pending.pop() {
            match split_encoded(&body) {
                Some(halves) => pending.extend(halves),
                None => singles.push(decoded(&body)),
            }
        }
        prop_assert_eq!(singles.len(), data.sample_count());
        for (_, profile) in singles.iter().flat_map(ProfilesData::profiles) {
            prop_assert!(ids.insert(profile.profile_id), "ids of parts are unique");
        }
        prop_assert_eq!(text::encode(&without_ids(merge(&singles))), whole);
    }
}

fn without_ids(mut data: ProfilesData) -> ProfilesData {
    data.resources.iter_mut().flat_map(|resource| &mut resource.profiles).for_each(|p| p.profile_id = [0; 16]);
    data
}

#[test]
fn more_samples_than_receivers_accept_become_several_profiles() {
    let count = if cfg!(miri) { 200 } else { 2 * MAX_SAMPLES_PER_PROFILE + 5 };
    let mut data = ProfilesData::default();
    let samples = (0..count)
        .map(|nth| {
            let attribute = data.dictionary.attribute("n", Value::Int(nth as i64), "");
            Sample { attributes: data.dictionary.attribute_set(&[attribute]), values: vec![1], ..Sample::default() }
        })
        .collect();
    let profile = Profile { samples, profile_id: [1; 16], ..Profile::default() };
    data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
    assert!(has_values(&data));
    let requests = encode_split(data, Revision::One, usize::MAX);
    let parts: Vec<ProfilesData> = requests.iter().map(|request| decoded(&request.body)).collect();
    let profiles: Vec<&Profile> = parts.iter().flat_map(ProfilesData::profiles).map(|(_, profile)| profile).collect();
    assert!(profiles.iter().all(|profile| profile.samples.len() <= MAX_SAMPLES_PER_PROFILE));
    assert_eq!(profiles.iter().map(|profile| profile.samples.len()).sum::<usize>(), count);
    let ids: HashSet<[u8; 16]> = profiles.iter().map(|profile| profile.profile_id).collect();
    assert_eq!(ids.len(), profiles.len());
}

#[test]
fn empty_profiles_and_zero_samples_are_not_encoded() {
    let mut data = ProfilesData::default();
    let profile = Profile { samples: vec![Sample { values: vec![0], ..Sample::default() }], ..Profile::default() };
    data.resources.push(ResourceProfiles { profiles: vec![profile, Profile::default()], ..Default::default() });
    assert!(!has_values(&data));
    assert_eq!(decoded(&encode(&data, Revision::One)).sample_count(), 0);
    assert!(decoded(&encode(&data, Revision::One)).resources.is_empty());
}

#[test]
fn the_schema_and_the_number_of_omitted_resource_attributes_are_on_the_wire() {
    let profile = Profile { samples: vec![Sample { values: vec![1], ..Sample::default() }], ..Profile::default() };
    let resource = ResourceProfiles {
        dropped_attributes_count: 7,
        scope: Scope::spanprof(),
        profiles: vec![profile],
        ..ResourceProfiles::default()
    };
    let data = ProfilesData { resources: vec![resource], ..ProfilesData::default() };
    let body = encode(&data, Revision::One);
    let urls = String::from_utf8_lossy(&body).matches("https://opentelemetry.io/schemas/1.").count();
    assert_eq!((decoded(&body).resources[0].dropped_attributes_count, urls), (7, 2), "of the resource and the scope");
}

#[test]
fn frame_types_of_other_profilers_are_kept_as_text() {
    let mut data = ProfilesData::default();
    let frames = ["wasm", "go", "rust", ""].map(|word| {
        let attribute = data.dictionary.attribute(FrameType::KEY, Value::String(word), "");
        let attributes = data.dictionary.attribute_set(&[attribute]);
        data.dictionary.location(Location { address: 1 + word.len() as u64, attributes, ..Location::default() })
    });
    let stack = data.dictionary.stack(&frames);
    let profile =
        Profile { samples: vec![Sample { stack, values: vec![1], ..Sample::default() }], ..Profile::default() };
    data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
    let again = decoded(&encode(&data, Revision::One));
    let stack = again.resources[0].profiles[0].samples[0].stack;
    let types = again.dictionary.get_stack(stack).iter().map(|frame| again.dictionary.frame_type_of(*frame).as_str());
    assert_eq!(types.collect::<Vec<_>>(), [Some("wasm"), Some("go"), Some("rust"), None]);
    let too_long = "x".repeat(65);
    assert_eq!(FrameType::from_wire(&too_long), FrameType::Unspecified);
}
