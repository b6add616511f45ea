//! Profiles, samples, and the resource they come from.

use super::*;

/// Type and unit of a value, e.g. `cpu`/`nanoseconds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueType {
    pub kind: String,
    pub unit: String,
}

/// An aggregated sample: identity is (stack, attributes, link).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub stack: StackId,
    pub attributes: Vec<AttributeId>,
    pub link: LinkId,
    /// One aggregated value; or one per timestamp; or empty, each timestamp then counts 1.
    pub values: Vec<i64>,
    pub timestamps_unix_nano: Vec<u64>,
}

/// Samples of one type over one window. Immutable once its window closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    pub sample_type: ValueType,
    pub period_type: ValueType,
    pub period: i64,
    pub time_unix_nano: u64,
    pub duration_nano: u64,
    pub profile_id: [u8; 16],
    pub samples: Vec<Sample>,
    pub attributes: Vec<AttributeId>,
    pub dropped_attributes_count: u32,
}

/// Name and version of what produced the profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub name: String,
    pub version: String,
}

/// Profiles of one resource and scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceProfiles {
    pub resource: Vec<Attribute>,
    pub scope: Scope,
    pub profiles: Vec<Profile>,
}
