//! The end of a request, which the host's threads report for tail-based retention. Not here: the decision (`retention`).

use std::time::Duration;

use crate::config::SampleRetention;
use crate::hash::hash_bytes;
use crate::profiler::Profiler;
use crate::sys::monotonic_ns;
use spanprof_signal::{Context, InlineContext, RawSample, SampleFlags, SampleKind};

/// The end of a request: a local root span, or the part of a trace that ran in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnd<'a> {
    /// W3C trace id; all zero when there is none.
    pub trace_id: [u8; 16],
    /// Span id of the local root span; all zero when unknown, for all samples of the trace.
    pub local_root_span_id: [u8; 8],
    /// Time from the start to the end of the request.
    pub duration: Duration,
    /// Name of the endpoint, whose requests share a 99th percentile. The span's name, or the route.
    pub endpoint: &'a str,
    /// Whether it ended with an error: status `ERROR` of the span, an exception, or an HTTP status of 500 or more.
    pub is_error: bool,
}

impl Profiler {
    /// Reports the end of a request, after its last sample: tail-based retention then decides on the samples. Never blocks. Without
    /// effect with `retention=all`. A report that does not fit into the ring is lost and counted
    /// (`dropped.submit_ring_full`); the request is then released undecided.
    pub fn request_ended(&self, end: &RequestEnd<'_>) {
        if !self.is_retention(SampleRetention::Tail) {
            return;
        }
        let context = InlineContext {
            trace_id: end.trace_id,
            local_root_span_id: end.local_root_span_id,
            ..InlineContext::default()
        };
        let duration_ns = u64::try_from(end.duration.as_nanos()).unwrap_or(u64::MAX);
        // Losses are counted by `submit`.
        let _ = self.submit(&RawSample {
            kind: SampleKind::RequestEnd,
            flags: SampleFlags::default(),
            thread_id: 0,
            time_ns: monotonic_ns(),
            values: [duration_ns, u64::from(end.is_error)],
            key: hash_bytes(0, end.endpoint.as_bytes()),
            context: Context::Inline(context),
            frames: &[],
        });
    }
}
