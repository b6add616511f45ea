//! OTLP profiles messages with the field numbers of opentelemetry-proto 1.10 (the same in 1.11) and the JSON names of the
//! Collector's file exporter. The request of the service and `ProfilesData` have the same wire format.
//!
//! The published message crate is not used, since it depends on the OpenTelemetry SDK.

use prost::bytes::Bytes;

use super::messages::{messages, schema, HasSchema, INDEX_BYTES, NUMBER_BYTES};

/// Field number of the stacks in [`ProfilesDictionary`].
pub(crate) const STACK_TABLE: u32 = 7;
/// Field number of the samples in [`Profile`].
pub(crate) const SAMPLES: u32 = 2;

messages! { json;
    ProfilesData {
        [1 message, repeated] resource_profiles: Vec<ResourceProfiles>, 400;
        [2 message, optional] dictionary: Option<ProfilesDictionary>, 400;
    }

    ProfilesDictionary {
        [1 message, repeated] mapping_table: Vec<Mapping>, 260;
        [2 message, repeated] location_table: Vec<Location>, 260;
        [3 message, repeated] function_table: Vec<Function>, 120;
        [4 message, repeated] link_table: Vec<Link>, 200;
        [5 string, repeated] string_table: Vec<String>, 120;
        [6 message, repeated] attribute_table: Vec<KeyValueAndUnit>, 220;
        [7 message, repeated] stack_table: Vec<Stack>, 130;
    }

    ResourceProfiles {
        [1 message, optional] resource: Option<Resource>, 120;
        [2 message, repeated] scope_profiles: Vec<ScopeProfiles>, 500;
        [3 string] schema_url: String;
    }

    Resource {
        [1 message, repeated] attributes: Vec<KeyValue>, 320;
        [2 uint32] dropped_attributes_count: u32;
    }

    ScopeProfiles {
        [1 message, optional] scope: Option<Scope>, 200;
        [2 message, repeated] profiles: Vec<Profile>, 800;
        [3 string] schema_url: String;
    }

    Scope {
        [1 string] name: String, 50;
        [2 string] version: String, 50;
        [3 message, repeated] attributes: Vec<KeyValue>, 320;
        [4 uint32] dropped_attributes_count: u32;
    }

    Profile {
        [1 message, optional] sample_type: Option<ValueType>, 64;
        [2 message, repeated] samples: Vec<Sample>, 320;
        [3 fixed64] time_unix_nano: u64;
        [4 uint64] duration_nano: u64;
        [5 message, optional] period_type: Option<ValueType>, 64;
        [6 int64] period: i64;
        [7 bytes] profile_id: Vec<u8>, 50;
        [8 uint32] dropped_attributes_count: u32;
        [9 string] original_payload_format: String, 50;
        [10 bytes = "bytes"] original_payload: Bytes, 50;
        [11 int32, repeated] attribute_indices: Vec<i32>, INDEX_BYTES;
    }

    #[derive(Copy)]
    ValueType {
        [1 int32] type_strindex: i32;
        [2 int32] unit_strindex: i32;
    }

    Sample {
        [1 int32] stack_index: i32;
        [2 int32, repeated] attribute_indices: Vec<i32>, INDEX_BYTES;
        [3 int32] link_index: i32;
        [4 int64, repeated] values: Vec<i64>, NUMBER_BYTES;
        [5 fixed64, repeated] timestamps_unix_nano: Vec<u64>, NUMBER_BYTES;
    }

    #[derive(Eq, Hash)]
    Stack {
        [1 int32, repeated] location_indices: Vec<i32>, INDEX_BYTES, StackDepth;
    }

    #[derive(Eq, Hash)]
    Location {
        [1 int32] mapping_index: i32;
        [2 uint64] address: u64;
        [3 message, repeated] lines: Vec<Line>, 100;
        [4 int32, repeated] attribute_indices: Vec<i32>, INDEX_BYTES;
    }

    #[derive(Eq, Hash)]
    Line {
        [1 int32] function_index: i32;
        [2 int64] line: i64;
        [3 int64] column: i64;
    }

    #[derive(Eq, Hash)]
    Function {
        [1 int32] name_strindex: i32;
        [2 int32] system_name_strindex: i32;
        [3 int32] filename_strindex: i32;
        [4 int64] start_line: i64;
    }

    #[derive(Eq, Hash)]
    Mapping {
        [1 uint64] memory_start: u64;
        [2 uint64] memory_limit: u64;
        [3 uint64] file_offset: u64;
        [4 int32] filename_strindex: i32;
        [5 int32, repeated] attribute_indices: Vec<i32>, INDEX_BYTES;
    }

    #[derive(Eq, Hash)]
    Link {
        [1 bytes] trace_id: Vec<u8>, 32;
        [2 bytes] span_id: Vec<u8>, 32;
    }

    KeyValueAndUnit {
        [1 int32] key_strindex: i32;
        [2 message, optional] value: Option<AnyValue>;
        [3 int32] unit_strindex: i32;
    }

    /// `key_strindex` (1.10, profiles only) is an index into the string table, which replaces `key`.
    KeyValue {
        [1 string] key: String, 50;
        [2 message, optional] value: Option<AnyValue>;
        [3 int32] key_strindex: i32;
    }

    ArrayValue {
        [1 message, repeated] values: Vec<AnyValue>, 160;
    }

    KeyValueList {
        [1 message, repeated] values: Vec<KeyValue>, 320;
    }
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

/// Text that field 8 refers to is copied from the string table; the decoder limits the sum (`CopyBudget`).
impl HasSchema for AnyValue {
    schema! {
        [1 string] string_value: String, 64;
        [2 bool] bool_value: bool;
        [3 int64] int_value: i64;
        [4 double] double_value: f64;
        [5 message] array_value: ArrayValue, 64;
        [6 message] kvlist_value: KeyValueList, 64;
        [7 bytes] bytes_value: Vec<u8>, 64;
        [8 int32] string_value_strindex: i32;
    }
}
