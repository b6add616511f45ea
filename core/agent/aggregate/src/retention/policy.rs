//! The conditions under which the samples of a request are kept in full detail.

use super::latency::EndpointLatencies;
use std::time::Duration;

/// The reason to keep a request; the first that applies, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepReason {
    /// At least `tail_duration` seconds.
    Duration,
    /// Longer than the 99th percentile of its endpoint.
    Percentile,
    /// At least `tail_cpu_share` CPU seconds per second.
    CpuShare,
    /// At least `tail_allocated_bytes`.
    AllocatedBytes,
    /// It ended with an error.
    Error,
}

/// The end of a request, as its thread reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndOfRequest {
    /// Monotonic time.
    pub time_ns: u64,
    pub duration_ns: u64,
    /// Hash of the endpoint.
    pub endpoint: u64,
    pub is_error: bool,
}

/// The samples of a request so far, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTotals {
    pub cpu_ns: u64,
    pub allocated_bytes: u64,
    /// Time from its first to its last sample.
    pub observed_ns: u64,
}

/// The duration from which a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowLimit {
    /// Longer than the 99th percentile of the endpoint's requests.
    Percentile,
    /// At least this duration.
    AtLeast(Duration),
}

/// Which requests are kept: all that meet at least one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct TailPolicy {
    /// Slow requests; `None`: independent of the duration.
    pub duration: Option<SlowLimit>,
    /// CPU seconds per second of a request.
    pub cpu_share: Option<f64>,
    /// Bytes that a request allocates.
    pub allocated_bytes: Option<u64>,
    /// Requests that end with an error.
    pub errors: bool,
    /// Memory for the samples of unfinished requests.
    pub max_bytes: usize,
}

impl TailPolicy {
    /// The condition that the samples of an unfinished request already meet.
    pub(super) fn before_end(&self, totals: &RequestTotals) -> Option<KeepReason> {
        if self.is_long(totals.observed_ns) {
            return Some(KeepReason::Duration);
        }
        self.allocates_much(totals).then_some(KeepReason::AllocatedBytes)
    }

    /// The condition that a finished request meets. Records its duration for the percentile of its endpoint.
    pub(super) fn at_end(
        &self,
        end: &EndOfRequest,
        totals: &RequestTotals,
        latencies: &mut EndpointLatencies,
    ) -> Option<KeepReason> {
        let p99_ns = match self.duration {
            Some(SlowLimit::Percentile) => latencies.record(end.endpoint, end.duration_ns),
            _ => None,
        };
        let is_cpu_bound = |share: f64| end.duration_ns > 0 && totals.cpu_ns as f64 >= share * end.duration_ns as f64;
        let conditions = [
            (self.is_long(end.duration_ns), KeepReason::Duration),
            (p99_ns.is_some_and(|p99_ns| end.duration_ns > p99_ns), KeepReason::Percentile),
            (self.cpu_share.is_some_and(is_cpu_bound), KeepReason::CpuShare),
            (self.allocates_much(totals), KeepReason::AllocatedBytes),
            (self.errors && end.is_error, KeepReason::Error),
        ];
        conditions.into_iter().find_map(|(is_met, reason)| is_met.then_some(reason))
    }

    fn is_long(&self, duration_ns: u64) -> bool {
        matches!(self.duration, Some(SlowLimit::AtLeast(least)) if u128::from(duration_ns) >= least.as_nanos())
    }

    fn allocates_much(&self, totals: &RequestTotals) -> bool {
        self.allocated_bytes.is_some_and(|bytes| totals.allocated_bytes >= bytes)
    }
}
