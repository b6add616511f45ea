//! Requests of Pyroscope's push protocol: each profile is in the series that Pyroscope's dashboards use, and totals by type,
//! stack and span are those of the window.

use prost::Message;
use spanprof_profile::encode::otlp::EncodedRequest;
use spanprof_profile::encode::pyroscope;
use spanprof_profile::*;
use spanprof_read::decode::{self, DecodeLimits};
use std::collections::BTreeMap;

use crate::stacks::stack_of;

/// push.v1.PushRequest (grafana/pyroscope, api/push/v1/push.proto).
#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawPprofSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawPprofSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

const SPAN: [u8; 8] = [0xab; 8];

/// One profile of each type; sample n of `samples` has the value n, its own stack and label, and the first has a span.
fn window(samples: i64) -> ProfilesData {
    let mut data = ProfilesData::default();
    let types = [
        ("samples", "count", "cpu", "nanoseconds"),
        ("wall", "nanoseconds", "wall", "nanoseconds"),
        ("alloc_objects", "count", "memory", "bytes"),
        ("alloc_space", "bytes", "memory", "bytes"),
        ("inuse_objects", "count", "memory", "bytes"),
        ("inuse_space", "bytes", "memory", "bytes"),
        ("contentions", "count", "mutex", "count"),
        ("delay", "nanoseconds", "mutex", "count"),
        ("threads", "count", "threads", "count"),
        ("off_cpu", "nanoseconds", "off_cpu", "nanoseconds"),
    ];
    let profiles = types.map(|(kind, unit, period, period_unit)| {
        let samples = (1..=samples).map(|number| sample(&mut data.dictionary, number));
        Profile {
            samples: samples.collect(),
            sample_type: ValueType::new(kind, unit),
            period_type: ValueType::new(period, period_unit),
            period: 10,
            time_unix_nano: 1_700_000_000_000_000_000,
            duration_nano: 10_000_000_000,
            exact_type: (kind == "samples").then(|| ValueType::new("cpu", "nanoseconds")),
            ..Profile::default()
        }
    });
    let resource = [("service.name", "shop"), ("service.version", "1.2"), ("0-host", "h"), ("empty", "")];
    data.resources.push(ResourceProfiles {
        resource: resource.map(|(key, value)| Attribute::string(key, value)).to_vec(),
        profiles: profiles.to_vec(),
        ..ResourceProfiles::default()
    });
    data
}

fn sample(dictionary: &mut Dictionary, number: i64) -> Sample {
    let labels = [("service.name", "shop"), ("user.tier", "gold"), ("user-tier", "other")];
    let labels: Vec<_> =
        labels.iter().map(|(key, value)| dictionary.attribute(key, Value::String(value), "")).collect();
    Sample {
        stack: stack_of(dictionary, [(&*format!("function_{number}"), "", 0, 0)]),
        attributes: dictionary.attribute_set(&labels),
        link: if number == 1 { dictionary.link(Link { span_id: SPAN, ..Link::default() }) } else { LinkId::default() },
        values: vec![number],
        exact_value: number * 10,
        ..Sample::default()
    }
}

/// Totals by series and type, as `memory alloc_space/bytes space/bytes`.
fn totals(requests: &[EncodedRequest]) -> BTreeMap<String, i64> {
    let mut totals = BTreeMap::new();
    for request in requests {
        for series in PushRequest::decode(request.body.as_slice()).unwrap().series {
            let labels: Vec<_> = series.labels.iter().map(|pair| (pair.name.as_str(), pair.value.as_str())).collect();
            // Sorted by name.
            let [("_0_host", "h"), ("__delta__", "false"), ("__name__", name), others @ ..] = labels.as_slice() else {
                panic!("{labels:?}")
            };
            assert_eq!(others, [("service_name", "shop"), ("service_version", "1.2")]);
            for raw in series.samples {
                assert_eq!(raw.raw_profile[..2], [0x1f, 0x8b], "gzip");
                let data = decode::pprof::decode(&raw.raw_profile, &DecodeLimits::default()).unwrap();
                for (_, profile) in data.profiles() {
                    let types = [&profile.sample_type, &profile.period_type];
                    let types = types.map(|of| format!("{}/{}", of.kind, of.unit)).join(" ");
                    *totals.entry(format!("{name} {types}")).or_default() +=
                        profile.samples.iter().map(Sample::total).sum::<i64>();
                    for sample in &profile.samples {
                        let labels: Vec<_> = data.dictionary.attributes_of(sample.attributes).collect();
                        let labels: Vec<_> =
                            labels.iter().map(|label| format!("{}={}", label.key, label.value)).collect();
                        assert_eq!(labels, ["user_tier=gold"], "one name, once, without the service");
                    }
                }
            }
        }
    }
    totals
}

fn expected(total: i64) -> BTreeMap<String, i64> {
    let names = [
        ("process_cpu samples/count cpu/nanoseconds", total),
        ("wall wall/nanoseconds wall/nanoseconds", total),
        ("memory alloc_objects/count space/bytes", total),
        ("memory alloc_space/bytes space/bytes", total),
        ("memory inuse_objects/count space/bytes", total),
        ("memory inuse_space/bytes space/bytes", total),
        ("mutex contentions/count contentions/count", total),
        ("mutex delay/nanoseconds contentions/count", total),
        ("goroutine goroutine/count goroutine/count", total),
        ("off_cpu off_cpu/nanoseconds off_cpu/nanoseconds", total),
    ];
    names.into_iter().map(|(name, total)| (name.to_owned(), total)).collect()
}

#[test]
fn every_type_has_the_name_of_pyroscopes_dashboards_and_its_total() {
    let requests = pyroscope::encode(window(20), 2 << 20);
    assert_eq!((requests.len(), requests[0].samples), (1, 200));
    assert_eq!(totals(&requests), expected(210));
}

#[test]
fn a_small_limit_splits_profiles_without_loss() {
    let requests = pyroscope::encode(window(100), 2_000);
    assert!(requests.len() > 10, "{}", requests.len());
    assert_eq!(requests.iter().map(|request| request.samples).sum::<usize>(), 1000);
    assert_eq!(totals(&requests), expected(5050));
}

#[test]
fn a_window_without_samples_is_no_request() {
    assert!(pyroscope::encode(window(0), 2_000).is_empty());
    assert!(pyroscope::encode(ProfilesData::default(), 2_000).is_empty());
}

#[test]
fn the_span_is_a_label_that_pyroscope_indexes() {
    let request = pyroscope::encode(window(1), 2 << 20).remove(0);
    let series = PushRequest::decode(request.body.as_slice()).unwrap().series;
    let wall = series.iter().find(|series| series.labels[2].value == "wall").unwrap();
    let data = decode::pprof::decode(&wall.samples[0].raw_profile, &DecodeLimits::default()).unwrap();
    let profile = &data.resources[0].profiles[0];
    assert_eq!(data.dictionary.get_link(profile.samples[0].link).span_id, SPAN);
}
