//! Encodings and errors of the OTLP decoder, on hand-written wire messages.

use prost::Message;

use super::*;
use crate::wire::otlp::any_value::Value as Wire;
use spanprof_profile::encode::text;
use spanprof_profile::{Attribute, AttributeValue};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn any(value: Wire) -> Option<wire::AnyValue> {
    Some(wire::AnyValue { value: Some(value) })
}

fn request() -> wire::ProfilesData {
    let sample = wire::Sample { stack_index: 1, link_index: 1, values: vec![3], ..Default::default() };
    let profile = wire::Profile {
        sample_type: Some(wire::ValueType { type_strindex: 1, unit_strindex: 2 }),
        samples: vec![sample],
        attribute_indices: vec![1],
        ..Default::default()
    };
    let list = wire::ArrayValue { values: vec![any(Wire::IntValue(1)).unwrap(), wire::AnyValue::default()] };
    let resource = wire::Resource {
        attributes: vec![
            wire::KeyValue { key_strindex: 3, value: any(Wire::StringValueStrindex(4)), ..Default::default() },
            wire::KeyValue { key: "args".into(), value: any(Wire::ArrayValue(list)), ..Default::default() },
        ],
        ..Default::default()
    };
    let attribute =
        wire::KeyValueAndUnit { key_strindex: 3, value: any(Wire::BytesValue(vec![0xbe, 0xef])), unit_strindex: 0 };
    wire::ProfilesData {
        resource_profiles: vec![wire::ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![wire::ScopeProfiles { profiles: vec![profile], ..Default::default() }],
            ..Default::default()
        }],
        dictionary: Some(wire::ProfilesDictionary {
            string_table: strings(&["", "wall", "nanoseconds", "service.name", "checkout"]),
            stack_table: vec![wire::Stack::default(), wire::Stack { location_indices: vec![0] }],
            link_table: vec![wire::Link::default(), wire::Link { trace_id: vec![1; 16], span_id: vec![2; 8] }],
            attribute_table: vec![wire::KeyValueAndUnit::default(), attribute],
            ..Default::default()
        }),
    }
}

fn error_of(change: impl FnOnce(&mut wire::ProfilesData)) -> String {
    let mut request = request();
    change(&mut request);
    decode(&request.encode_to_vec(), &DecodeLimits::default()).unwrap_err().to_string()
}

fn dictionary(request: &mut wire::ProfilesData) -> &mut wire::ProfilesDictionary {
    request.dictionary.as_mut().unwrap()
}

fn sample(request: &mut wire::ProfilesData) -> &mut wire::Sample {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0]
}

#[test]
fn references_of_a_resource_are_resolved_and_arrays_and_bytes_become_text() {
    let data = decode(&request().encode_to_vec(), &DecodeLimits::default()).unwrap();
    let expected = [Attribute::string("service.name", "checkout"), Attribute::string("args", "[1,null]")];
    assert_eq!(data.resources[0].resource, expected);
    assert_eq!(data.resources[0].service_name(), "checkout");
    let (_, profile) = data.profiles().next().unwrap();
    let attributes: Vec<String> =
        data.dictionary.attributes_of(profile.attributes).map(|a| format!("{}={}", a.key, a.value)).collect();
    assert_eq!(attributes, ["service.name=beef"]);
}

#[test]
fn an_index_out_of_range_is_rejected_with_its_path() {
    assert_eq!(
        error_of(|request| sample(request).stack_index = 99),
        "cannot read OTLP profiles at resource_profiles[0].scope_profiles[0].profiles[0].samples[0].stack_index: \
         expected an index below 2, got 99"
    );
    assert!(
        error_of(|request| sample(request).link_index = -1).contains("link_index: expected an index below 2, got -1")
    );
    assert!(error_of(|request| sample(request).attribute_indices = vec![1, 2]).contains("attribute_indices[1]"));
    let stacks = |request: &mut wire::ProfilesData| dictionary(request).stack_table[1].location_indices = vec![0, 7];
    assert!(error_of(stacks)
        .contains("dictionary.stack_table[1].location_indices[1]: expected 0, for the table is empty, got 7"));
    let line = wire::Line { function_index: 3, ..Default::default() };
    let location = wire::Location { lines: vec![line], ..Default::default() };
    assert!(
        error_of(|r| dictionary(r).location_table.push(location)).contains("location_table[0].lines[0].function_index")
    );
    let key = |request: &mut wire::ProfilesData| {
        request.resource_profiles[0].resource.as_mut().unwrap().attributes[0].key_strindex = 5;
    };
    assert!(error_of(key).contains("resource.attributes[0].key_strindex: expected an index below 5, got 5"));
}

#[test]
fn nonempty_sentinels_and_malformed_links_and_samples_are_rejected() {
    let first = |request: &mut wire::ProfilesData| dictionary(request).string_table[0] = "x".into();
    assert!(error_of(first).contains("dictionary.string_table[0]: expected \"\", got \"x\""));
    let link = |request: &mut wire::ProfilesData| dictionary(request).link_table[0].trace_id = vec![1; 16];
    assert!(error_of(link).contains("dictionary.link_table[0]: expected the empty link"));
    let short = |request: &mut wire::ProfilesData| dictionary(request).link_table[1].span_id = vec![1; 3];
    assert!(error_of(short).contains("link_table[1].span_id: expected 8 bytes, got 3"));
    let shape = |request: &mut wire::ProfilesData| sample(request).timestamps_unix_nano = vec![1, 2];
    assert!(error_of(shape).contains("values: expected 2, one per timestamp, got 1"));
}

#[test]
fn samples_without_references_need_no_dictionary() {
    let mut request = request();
    request.dictionary = None;
    let scope = &mut request.resource_profiles[0].scope_profiles[0];
    scope.profiles = vec![wire::Profile { samples: vec![wire::Sample::default()], ..Default::default() }];
    request.resource_profiles[0].resource = None;
    let data = decode(&request.encode_to_vec(), &DecodeLimits::default()).unwrap();
    assert_eq!(data.sample_count(), 1);
    assert_eq!(decode(b"", &DecodeLimits::default()).unwrap().sample_count(), 0);
}

#[test]
fn both_formats_of_the_file_exporter_are_decoded() {
    let body = request().encode_to_vec();
    let once = text::encode(&decode(&body, &DecodeLimits::default()).unwrap());
    let mut framed = Vec::new();
    for _ in 0..2 {
        framed.extend((body.len() as u32).to_be_bytes());
        framed.extend(&body);
    }
    let read = decode(&framed, &DecodeLimits::default()).unwrap();
    assert_eq!(text::encode(&read), [once.clone(), once.clone()].join("\n"));
    framed.pop();
    let error = decode(&framed, &DecodeLimits::default()).unwrap_err().to_string();
    assert!(error.contains("at request 2: expected a message of"), "{error}");

    let line = r#"{"resourceProfiles":[{"resource":{"attributes":[
        {"value":{"stringValueStrindex":4},"keyStrindex":3},
        {"key":"args","value":{"arrayValue":{"values":[{"intValue":"1"},{}]}}}]},"scopeProfiles":[{"profiles":[
        {"sampleType":{"typeStrindex":1,"unitStrindex":2},"samples":[{"stackIndex":1,"linkIndex":1,"values":["3"]}],
        "attributeIndices":[1]}]}]}],"dictionary":{"stringTable":["","wall","nanoseconds","service.name","checkout"],
        "stackTable":[{},{"locationIndices":[0]}],"linkTable":[{},{"traceId":"01010101010101010101010101010101",
        "spanId":"0202020202020202"}],"attributeTable":[{},{"keyStrindex":3,"value":{"bytesValue":"vu8="}}]}}"#
        .replace('\n', " ");
    let read = decode(format!("{line}\n\n {line}\n").as_bytes(), &DecodeLimits::default()).unwrap();
    assert_eq!(text::encode(&read), [once.clone(), once].join("\n"));
    let error =
        decode(format!("{line}\n{{\"dictionary\":7}}").as_bytes(), &DecodeLimits::default()).unwrap_err().to_string();
    assert!(error.contains("at request 2: expected OTLP profiles in JSON"), "{error}");
}

#[test]
fn references_may_not_copy_more_text_than_the_limit() {
    let mut request = request();
    dictionary(&mut request).string_table.push("x".repeat(1000));
    let attribute = wire::KeyValue { value: any(Wire::StringValueStrindex(5)), ..Default::default() };
    let resource = request.resource_profiles[0].resource.as_mut().unwrap();
    resource.attributes = vec![attribute; 200];
    let limits = |memory_bytes| DecodeLimits { memory_bytes, ..DecodeLimits::default() };
    let body = request.encode_to_vec();
    let error = decode(&body, &limits(150_000)).unwrap_err().to_string();
    assert!(error.contains("references to at most 150000 bytes of text"), "{error}");
    let data = decode(&body, &limits(300_000)).unwrap();
    assert!(matches!(&data.resources[0].resource[199].value, AttributeValue::String(text) if text.len() == 1000));
}

#[test]
fn stacks_deeper_than_the_limit_are_rejected_in_json_too() {
    let limits = DecodeLimits { stack_depth: 2, ..DecodeLimits::default() };
    let line = br#"{"dictionary":{"stackTable":[{"locationIndices":[0,0,0]}]}}"#;
    let error = decode(line, &limits).unwrap_err().to_string();
    assert!(error.contains("dictionary.stack_table[0].location_indices: expected at most 2 locations, got 3"));
}

#[test]
fn a_request_of_123_bytes_is_not_taken_for_json() {
    let scope_profiles = vec![wire::ScopeProfiles::default()];
    let request = |schema_url: String| wire::ProfilesData {
        resource_profiles: vec![wire::ResourceProfiles {
            schema_url,
            scope_profiles: scope_profiles.clone(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let body = request("x".repeat(119)).encode_to_vec();
    assert_eq!(&body[..2], b"\n{");
    assert_eq!(decode(&body, &DecodeLimits::default()).unwrap().resources.len(), 1);
    assert_eq!(super::super::any(&body, &DecodeLimits::default()).unwrap().1.resources.len(), 1);
    assert_eq!(decode(b"\n{\"resourceProfiles\":[]}\n", &DecodeLimits::default()).unwrap().resources.len(), 0);
}
