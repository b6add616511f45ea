//! OTLP profiles messages with the field numbers of opentelemetry-proto 1.10 (the same in 1.11) and the JSON names of the
//! Collector's file exporter. The request of the service and `ProfilesData` have the same wire format.
//!
//! JSON omits default values, as protobuf's mapping allows, and original payloads, which our encoder does not write.
//!
//! The published message crate is not used, since it depends on the OpenTelemetry SDK.

use serde::{Deserialize, Serialize};

use super::json;

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub dictionary: Option<ProfilesDictionary>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ProfilesDictionary {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub mapping_table: Vec<Mapping>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub location_table: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub function_table: Vec<Function>,
    #[prost(message, repeated, tag = "4")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub link_table: Vec<Link>,
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub attribute_table: Vec<KeyValueAndUnit>,
    #[prost(message, repeated, tag = "7")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub stack_table: Vec<Stack>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub scope_profiles: Vec<ScopeProfiles>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub profiles: Vec<Profile>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub version: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Profile {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub samples: Vec<Sample>,
    #[prost(fixed64, tag = "3")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "6")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub period: i64,
    #[prost(bytes = "vec", tag = "7")]
    #[serde(
        deserialize_with = "json::hex",
        serialize_with = "json::hex_text",
        skip_serializing_if = "json::is_default"
    )]
    pub profile_id: Vec<u8>,
    #[prost(uint32, tag = "8")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub dropped_attributes_count: u32,
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub original_payload_format: String,
    #[prost(bytes = "vec", tag = "10")]
    #[serde(deserialize_with = "json::base64", skip_serializing)]
    pub original_payload: Vec<u8>,
    #[prost(int32, repeated, tag = "11")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub attribute_indices: Vec<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ValueType {
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub type_strindex: i32,
    #[prost(int32, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub unit_strindex: i32,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Sample {
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub attribute_indices: Vec<i32>,
    #[prost(int32, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub link_index: i32,
    #[prost(int64, repeated, tag = "4")]
    #[serde(
        deserialize_with = "json::numbers",
        serialize_with = "json::texts",
        skip_serializing_if = "json::is_default"
    )]
    pub values: Vec<i64>,
    #[prost(fixed64, repeated, tag = "5")]
    #[serde(
        deserialize_with = "json::numbers",
        serialize_with = "json::texts",
        skip_serializing_if = "json::is_default"
    )]
    pub timestamps_unix_nano: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Stack {
    #[prost(int32, repeated, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub location_indices: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Location {
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub mapping_index: i32,
    #[prost(uint64, tag = "2")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub address: u64,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub lines: Vec<Line>,
    #[prost(int32, repeated, tag = "4")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub attribute_indices: Vec<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Line {
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub function_index: i32,
    #[prost(int64, tag = "2")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub line: i64,
    #[prost(int64, tag = "3")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub column: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Function {
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub name_strindex: i32,
    #[prost(int32, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub filename_strindex: i32,
    #[prost(int64, tag = "4")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub start_line: i64,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Mapping {
    #[prost(uint64, tag = "1")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub memory_start: u64,
    #[prost(uint64, tag = "2")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub memory_limit: u64,
    #[prost(uint64, tag = "3")]
    #[serde(
        deserialize_with = "json::number",
        serialize_with = "json::text",
        skip_serializing_if = "json::is_default"
    )]
    pub file_offset: u64,
    #[prost(int32, tag = "4")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub attribute_indices: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(
        deserialize_with = "json::hex",
        serialize_with = "json::hex_text",
        skip_serializing_if = "json::is_default"
    )]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(
        deserialize_with = "json::hex",
        serialize_with = "json::hex_text",
        skip_serializing_if = "json::is_default"
    )]
    pub span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct KeyValueAndUnit {
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub value: Option<AnyValue>,
    #[prost(int32, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub unit_strindex: i32,
}

/// `key_strindex` (1.10, profiles only) is an index into the string table, which replaces `key`.
#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub value: Option<AnyValue>,
    #[prost(int32, tag = "3")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub key_strindex: i32,
}

/// An absent value is `{}` in JSON, hence the implementations in [`json`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "any_value::Value", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub value: Option<any_value::Value>,
}

pub(crate) mod any_value {
    /// `StringValueStrindex` (1.10, profiles only) is an index into the string table.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[expect(clippy::enum_variant_names, reason = "the names are those of the specification")]
    pub(crate) enum Value {
        #[prost(string, tag = "1")]
        StringValue(String),
        #[prost(bool, tag = "2")]
        BoolValue(bool),
        #[prost(int64, tag = "3")]
        IntValue(i64),
        #[prost(double, tag = "4")]
        DoubleValue(f64),
        #[prost(message, tag = "5")]
        ArrayValue(super::ArrayValue),
        #[prost(message, tag = "6")]
        KvlistValue(super::KeyValueList),
        #[prost(bytes = "vec", tag = "7")]
        BytesValue(Vec<u8>),
        #[prost(int32, tag = "8")]
        StringValueStrindex(i32),
    }
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "json::is_default")]
    pub values: Vec<KeyValue>,
}
