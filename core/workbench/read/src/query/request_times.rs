//! Durations and starts of requests, from the profile `requests`: each ended request has its duration as a label, and those that keep
//! their span the time of their end.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use spanprof_profile::kinds::REQUESTS;
use spanprof_profile::{Attribute, Dictionary, RequestDuration, ResourceProfiles, Sample, Value};

/// The type of the durations of ended requests in [`SpanTotals`](super::SpanTotals), in nanoseconds: no profile has it, since a
/// duration is a label of the type `requests`. Of the spans, only failed and slow ones have it.
pub const REQUEST_TIME: &str = "request_time";

/// Whether a type counts or times requests, instead of samples.
pub fn is_of_requests(type_name: &str) -> bool {
    REQUESTS.has(type_name) || type_name == REQUEST_TIME
}

/// Whether requests of a process await on an event loop, without a thread: the part of their duration that is no CPU time is a wait.
pub(crate) fn awaits(resource: &ResourceProfiles) -> bool {
    let is_node = |it: &Attribute| it.key == "process.runtime.name" && it.value.as_ref() == Value::String("nodejs");
    resource.resource.iter().any(is_node)
}

/// When a span began. The smaller one is the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FirstTime {
    /// The start of the request.
    Start(u64),
    /// Its first sample with a timestamp.
    Sample(u64),
    /// The start of the first window.
    Window(u64),
}

impl FirstTime {
    pub fn unix_nano(self) -> u64 {
        match self {
            Self::Start(time) | Self::Sample(time) | Self::Window(time) => time,
        }
    }
}

/// Nanoseconds of the duration of an ended request.
pub(crate) fn request_duration(dictionary: &Dictionary, sample: &Sample) -> Option<i64> {
    let label = dictionary.attributes_of(sample.attributes).find(|label| label.key == RequestDuration::LABEL)?;
    match label.value {
        Value::Int(ns) if ns >= 0 => Some(ns),
        _ => None,
    }
}

/// Number of ended requests by endpoint and duration.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestDurations {
    of_endpoint: HashMap<u32, BTreeMap<i64, i64>>,
}

impl RequestDurations {
    pub fn add(&mut self, endpoint: u32, duration_ns: i64, requests: i64) {
        let count = self.of_endpoint.entry(endpoint).or_default().entry(duration_ns).or_default();
        *count = count.saturating_add(requests);
    }

    /// By nearest rank; `None` without requests.
    pub fn median_and_p99(&self, endpoint: u32) -> Option<[i64; 2]> {
        let counts = self.of_endpoint.get(&endpoint)?;
        // Counts of a file may be any numbers.
        let total: i128 = counts.values().map(|count| i128::from(*count)).sum();
        let at = |percent: i128| {
            let mut before = 0;
            let reaches = |(_, count): &(&i64, &i64)| {
                before += i128::from(**count);
                before * 100 >= total * percent
            };
            counts.iter().find(reaches).map(|(duration_ns, _)| *duration_ns)
        };
        Some([at(50)?, at(99)?])
    }

    /// Number of requests of an endpoint.
    pub fn requests(&self, endpoint: u32) -> usize {
        let counts = self.of_endpoint.get(&endpoint).into_iter().flat_map(BTreeMap::values);
        usize::try_from(counts.fold(0i64, |sum, count| sum.saturating_add(*count))).unwrap_or(0)
    }

    /// Each endpoint with its durations and their counts, in ascending order.
    pub fn listed(&self) -> Vec<(u32, Vec<(i64, i64)>)> {
        let listed = |(endpoint, counts): (&u32, &BTreeMap<i64, i64>)| {
            (*endpoint, counts.iter().map(|(duration_ns, count)| (*duration_ns, *count)).collect())
        };
        let mut all: Vec<_> = self.of_endpoint.iter().map(listed).collect();
        all.sort_by_key(|(endpoint, _): &(u32, Vec<_>)| *endpoint);
        all
    }
}
