//! The request of metrics equals the one that prost encodes from messages declared as in metrics.proto.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<MetricMessage>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct MetricMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "MetricData", tags = "5, 7")]
    data: Option<MetricData>,
}

#[derive(Clone, PartialEq, Oneof)]
enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(GaugeMessage),
    #[prost(message, tag = "7")]
    Sum(SumMessage),
}

#[derive(Clone, PartialEq, Message)]
struct GaugeMessage {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct SumMessage {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct NumberDataPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(oneof = "NumberValue", tags = "4, 6")]
    value: Option<NumberValue>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Oneof)]
enum NumberValue {
    #[prost(double, tag = "4")]
    AsDouble(f64),
    #[prost(sfixed64, tag = "6")]
    AsInt(i64),
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    StringValue(String),
    #[prost(int64, tag = "3")]
    IntValue(i64),
}

fn key_values(attributes: &[Attribute]) -> Vec<KeyValue> {
    let value = |attribute: &Attribute| AnyValue {
        value: Some(AnyValueKind::StringValue(attribute.value.as_ref().to_string())),
    };
    attributes.iter().map(|attribute| KeyValue { key: attribute.key.clone(), value: Some(value(attribute)) }).collect()
}

/// The same request as messages.
fn messages(resource: &[Attribute], metrics: &[Metric], time_unix_nano: u64) -> Request {
    let metric = |metric: &Metric| {
        let point = |point: &DataPoint| NumberDataPoint {
            start_time_unix_nano: point.start_time_unix_nano,
            time_unix_nano,
            value: Some(NumberValue::AsInt(i64::try_from(point.value).unwrap_or(i64::MAX))),
            attributes: key_values(&point.attributes),
        };
        let data_points = metric.points.iter().map(point).collect();
        MetricMessage {
            name: metric.name.clone(),
            description: metric.description.clone(),
            unit: metric.unit.clone(),
            data: Some(match metric.metric_type {
                MetricType::Gauge => MetricData::Gauge(GaugeMessage { data_points }),
                MetricType::Counter => {
                    MetricData::Sum(SumMessage { data_points, aggregation_temporality: 2, is_monotonic: true })
                }
            }),
        }
    };
    let scope = InstrumentationScope { name: "spanprof".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let scope_metrics =
        ScopeMetrics { scope: Some(scope), metrics: metrics.iter().map(metric).collect(), schema_url: String::new() };
    let resource = ResourceMessage { attributes: key_values(resource) };
    Request {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![scope_metrics],
            schema_url: String::new(),
        }],
    }
}

fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
    vec(("[a-z.]{1,9}", ".{0,150}").prop_map(|(key, value)| Attribute::string(key, value)), 0..4)
}

fn metrics() -> impl Strategy<Value = Vec<Metric>> {
    let value = prop_oneof![Just(0), Just(u64::MAX), Just(i64::MAX as u64), any::<u64>(), 0..1000u64];
    let point = (attributes(), prop_oneof![Just(0), any::<u64>()], value)
        .prop_map(|(attributes, start_time_unix_nano, value)| DataPoint { attributes, start_time_unix_nano, value });
    let metric_type = prop_oneof![Just(MetricType::Gauge), Just(MetricType::Counter)];
    let metric = ("[a-z._]{0,40}", ".{0,200}", "[a-z{}]{0,9}", metric_type, vec(point, 0..9)).prop_map(
        |(name, description, unit, metric_type, points)| Metric { name, description, unit, metric_type, points },
    );
    vec(metric, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 300 }, ..ProptestConfig::default() })]

    #[test]
    fn random_requests_equal_those_of_prost(resource in attributes(), metrics in metrics(), time in any::<u64>()) {
        let encoded = encode(&resource, &metrics, time);
        let expected = messages(&resource, &metrics, time);
        prop_assert_eq!(&Request::decode(encoded.as_slice()).unwrap(), &expected);
        prop_assert_eq!(encoded, expected.encode_to_vec());
    }
}

#[test]
fn a_value_of_zero_is_written() {
    let point = DataPoint { attributes: Vec::new(), start_time_unix_nano: 5, value: 0 };
    let metric = Metric {
        name: "spanprof.panics".to_owned(),
        description: String::new(),
        unit: "{panic}".to_owned(),
        metric_type: MetricType::Counter,
        points: vec![point],
    };
    let request = Request::decode(encode(&[], &[metric], 9).as_slice()).unwrap();
    let Some(MetricData::Sum(sum)) = &request.resource_metrics[0].scope_metrics[0].metrics[0].data else { panic!() };
    assert_eq!(sum.data_points[0].value, Some(NumberValue::AsInt(0)));
    assert_eq!((sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano), (5, 9));
}
