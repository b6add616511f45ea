//! Profiles, samples, and their resource and scope.

use super::*;

/// Type and unit of a value, e.g. `cpu`/`nanoseconds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueType {
    /// Type of the values: `cpu`, `samples`…
    pub kind: String,
    /// Unit of the values: `nanoseconds`, `count`, `bytes`…
    pub unit: String,
}

impl ValueType {
    /// A value type of `kind` and `unit`.
    pub fn new(kind: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { kind: kind.into(), unit: unit.into() }
    }

    /// Whether it has neither type nor unit.
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty() && self.unit.is_empty()
    }
}

/// An aggregated sample. Its identity is (stack, attributes, link).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The stack, leaf first.
    pub stack: StackId,
    /// Labels and other attributes.
    pub attributes: AttributeSetId,
    /// Trace and span; empty for none.
    pub link: LinkId,
    /// One aggregated value, or one per timestamp, or empty: each timestamp then counts 1.
    pub values: Vec<i64>,
    /// Empty, or the time of each value.
    pub timestamps_unix_nano: Vec<u64>,
    /// The exact measurement of the whole sample, in [`Profile::exact_type`]; 0 when the profile has none.
    pub exact_value: i64,
}

/// [`Profile::is_gauge`] of profiles of this type.
pub fn is_gauge_type(type_name: &str) -> bool {
    type_name == "goroutine" || crate::kinds::of_type(type_name).is_some_and(|kind| kind.is_gauge)
}

/// Samples of one type over one window. Immutable once its window is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Type and unit of the values.
    pub sample_type: ValueType,
    /// Type and unit of the period, e.g. `cpu`/`nanoseconds`.
    pub period_type: ValueType,
    /// Sampling interval, in the unit of `period_type`; 0 when there is none.
    pub period: i64,
    /// Start of the window, Unix nanoseconds.
    pub time_unix_nano: u64,
    /// Length of the window in nanoseconds.
    pub duration_nano: u64,
    /// Identity of this profile; all zeros for none.
    pub profile_id: [u8; 16],
    /// The samples, each identity once.
    pub samples: Vec<Sample>,
    /// Attributes of the profile as a whole.
    pub attributes: AttributeSetId,
    /// Number of attributes that the producer omitted.
    pub dropped_attributes_count: u32,
    /// Set when the values count periods (`samples`/`count`) and the samples also have an exact measurement, e.g.
    /// `cpu`/`nanoseconds`. OTLP has no field for it; pprof writes it as a separate value type.
    pub exact_type: Option<ValueType>,
}

/// Longest time that one observation of a waiting thread covers, nanoseconds: profiles of `off_cpu` do not state their number.
const WAIT_SAMPLE_NS: f64 = 2.5e8;

impl Profile {
    /// The profile type: `cpu`, `wall`, `alloc_space`… Counted samples have the type of their period.
    pub fn type_name(&self) -> &str {
        match &self.exact_type {
            Some(exact) => &exact.kind,
            None if self.counts_periods() => &self.period_type.kind,
            None => &self.sample_type.kind,
        }
    }

    /// The unit of [`Profile::weight`]: `nanoseconds`, `bytes`, `count`.
    pub fn unit(&self) -> &str {
        match &self.exact_type {
            Some(exact) => &exact.unit,
            None if self.counts_periods() => &self.period_type.unit,
            None => &self.sample_type.unit,
        }
    }

    /// Weight of a sample in [`Profile::unit`]: the exact measurement if there is one, else the sum of the values, multiplied
    /// by the period if they count periods.
    pub fn weight(&self, sample: &Sample) -> i64 {
        if self.exact_type.is_some() {
            return sample.exact_value;
        }
        let total = sample.total();
        if self.counts_periods() {
            total.saturating_mul(self.period)
        } else {
            total
        }
    }

    /// Whether the values count periods of a known length and unit.
    pub fn counts_periods(&self) -> bool {
        self.sample_type.kind == "samples"
            && self.sample_type.unit == "count"
            && self.period > 0
            && !self.period_type.kind.is_empty()
            && self.period_type != self.sample_type
    }

    /// The weight of one sample; `None` of events and of measured times, such as `off_cpu`, which have the period of a nanosecond. Of
    /// allocations it is the mean interval: samples of larger objects weigh more, so the number of samples is estimated too high only
    /// where the weight is nearly exact.
    pub fn sampling_interval(&self) -> Option<f64> {
        let counts_samples = self.sample_type.kind == "samples" && self.unit() == "count";
        let is_measured = self.period == 1 && self.unit() == "nanoseconds";
        if self.period_type.unit == self.unit() && self.period > 0 && !is_measured {
            Some(self.period as f64)
        } else {
            counts_samples.then_some(1.0)
        }
    }

    /// The number of samples in an aggregated sample of this weight, and whether it is known; otherwise it is at least 1.
    pub fn estimated_samples(&self, weight: i64) -> (f64, bool) {
        match self.sampling_interval() {
            Some(interval) => (weight as f64 / interval, true),
            None if self.type_name() == "off_cpu" => ((weight as f64 / WAIT_SAMPLE_NS).max(1.0), true),
            None => (1.0, false),
        }
    }

    /// As [`Self::estimated_samples`], as a whole number: the values themselves where they count samples.
    pub fn observations(&self, sample: &Sample) -> i64 {
        if self.sample_type.kind == "samples" && self.sample_type.unit == "count" {
            sample.total()
        } else {
            self.estimated_samples(self.weight(sample)).0.round().max(1.0) as i64
        }
    }

    /// Whether the values describe the state at the end of the window, such as the memory in use. Windows of one process then
    /// do not add up: the newest replaces the others.
    pub fn is_gauge(&self) -> bool {
        is_gauge_type(self.type_name())
    }

    /// End of the window.
    pub fn end_unix_nano(&self) -> u64 {
        self.time_unix_nano.saturating_add(self.duration_nano)
    }
}

impl Sample {
    /// Sum of the values; timestamps without values count 1 each.
    pub fn total(&self) -> i64 {
        if self.values.is_empty() {
            return self.timestamps_unix_nano.len() as i64;
        }
        self.values.iter().fold(0i64, |sum, value| sum.saturating_add(*value))
    }
}

/// Instrumentation scope: the library that produced the profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// Name of the library.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Scope {
    /// The scope of spanprof itself.
    pub fn spanprof() -> Self {
        Self { name: "spanprof".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Profiles of one resource and scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceProfiles {
    /// Attributes of the resource, `service.name` included.
    pub resource: Vec<Attribute>,
    /// Number of attributes of the resource that the producer omitted.
    pub dropped_attributes_count: u32,
    /// The scope that produced them.
    pub scope: Scope,
    /// One per type and window.
    pub profiles: Vec<Profile>,
}

/// Attributes of a resource, each of which identifies one process.
pub const PROCESS_IDENTITY: [&str; 2] = ["service.instance.id", "process.pid"];

impl ResourceProfiles {
    /// Whether its profiles are of one process, by [`PROCESS_IDENTITY`].
    pub fn is_one_process(&self) -> bool {
        self.resource.iter().any(|attribute| PROCESS_IDENTITY.contains(&attribute.key.as_str()))
    }

    /// The resource's `service.name`, "" when it has none.
    pub fn service_name(&self) -> &str {
        self.resource
            .iter()
            .find_map(|attribute| match &attribute.value {
                AttributeValue::String(name) if attribute.key == "service.name" => Some(name.as_str()),
                _ => None,
            })
            .unwrap_or("")
    }
}

/// The contents of a request, file or query result: profiles of any number of resources with one dictionary.
#[derive(Clone, Debug, Default)]
pub struct ProfilesData {
    /// The tables of all ids below.
    pub dictionary: Dictionary,
    /// Profiles by resource and scope.
    pub resources: Vec<ResourceProfiles>,
}

impl ProfilesData {
    /// Every profile with the resource it belongs to.
    pub fn profiles(&self) -> impl Iterator<Item = (&ResourceProfiles, &Profile)> {
        self.resources.iter().flat_map(|resource| resource.profiles.iter().map(move |profile| (resource, profile)))
    }

    /// Samples of all profiles.
    pub fn sample_count(&self) -> usize {
        self.profiles().map(|(_, profile)| profile.samples.len()).sum()
    }
}
