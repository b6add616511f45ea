//! The messages of an OTLP profiles request that the benchmark's profile needs, as prost generates them.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(message, repeated, tag = "1")]
    pub resource_profiles: Vec<ResourceMessage>,
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<DictionaryMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceMessage {
    #[prost(message, repeated, tag = "2")]
    pub scope_profiles: Vec<ScopeMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeMessage {
    #[prost(message, repeated, tag = "2")]
    pub profiles: Vec<ProfileMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProfileMessage {
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<TypeMessage>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<SampleMessage>,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub period_type: Option<TypeMessage>,
    #[prost(int64, tag = "6")]
    pub period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct TypeMessage {
    #[prost(int32, tag = "1")]
    pub type_strindex: i32,
    #[prost(int32, tag = "2")]
    pub unit_strindex: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct SampleMessage {
    #[prost(int32, tag = "1")]
    pub stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    pub attribute_indices: Vec<i32>,
    #[prost(int32, tag = "3")]
    pub link_index: i32,
    #[prost(int64, repeated, tag = "4")]
    pub values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DictionaryMessage {
    #[prost(message, repeated, tag = "1")]
    pub mapping_table: Vec<MappingMessage>,
    #[prost(message, repeated, tag = "2")]
    pub location_table: Vec<LocationMessage>,
    #[prost(message, repeated, tag = "3")]
    pub function_table: Vec<FunctionMessage>,
    #[prost(string, repeated, tag = "5")]
    pub string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub attribute_table: Vec<AttributeMessage>,
    #[prost(message, repeated, tag = "7")]
    pub stack_table: Vec<StackMessage>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct MappingMessage {}

#[derive(Clone, PartialEq, Message)]
pub struct LocationMessage {
    #[prost(uint64, tag = "2")]
    pub address: u64,
    #[prost(message, repeated, tag = "3")]
    pub lines: Vec<LineMessage>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LineMessage {
    #[prost(int32, tag = "1")]
    pub function_index: i32,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct FunctionMessage {
    #[prost(int32, tag = "1")]
    pub name_strindex: i32,
    #[prost(int32, tag = "2")]
    pub system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    pub filename_strindex: i32,
    #[prost(int64, tag = "4")]
    pub start_line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct AttributeMessage {
    #[prost(int32, tag = "1")]
    pub key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    pub value: Option<ValueMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueMessage {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StackMessage {
    #[prost(int32, repeated, tag = "1")]
    pub location_indices: Vec<i32>,
}
