//! Durations and starts of requests, from the profile `requests`: each ended request has its duration as a label, and those that keep
//! their span the time of their end.

use std::collections::BTreeMap;

use spanprof_profile::kinds::REQUESTS;
use spanprof_profile::{Dictionary, RequestDuration, Sample, Value};

/// The type of the durations of ended requests in [`SpanTotals`](super::SpanTotals), in nanoseconds: no profile has it, since a duration is a label of the
/// type `requests`. Of the spans, only failed and slow ones have it.
pub const REQUEST_TIME: &str = "request_time";

/// Whether a type counts or times requests, instead of samples.
pub fn is_of_requests(type_name: &str) -> bool {
    REQUESTS.has(type_name) || type_name == REQUEST_TIME
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
pub(super) fn request_duration(dictionary: &Dictionary, sample: &Sample) -> Option<i64> {
    let label = dictionary.attributes_of(sample.attributes).find(|label| label.key == RequestDuration::LABEL)?;
    match label.value {
        Value::Int(ns) if ns >= 0 => Some(ns),
        _ => None,
    }
}

/// By nearest rank, of values with their number.
pub(super) fn median_and_p99_of_counts(counts: &BTreeMap<i64, i64>) -> Option<[i64; 2]> {
    let total: i64 = counts.values().sum();
    let at = |percent: i64| {
        let mut before = 0;
        let reaches = |(_, count): &(&i64, &i64)| {
            before += **count;
            before * 100 >= total * percent
        };
        counts.iter().find(reaches).map(|(value, _)| *value)
    };
    Some([at(50)?, at(99)?])
}
