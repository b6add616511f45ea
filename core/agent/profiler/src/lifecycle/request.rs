//! The end of a request, which the host's threads report: by a span processor, or by the middleware of a web framework. Ends are
//! counted by endpoint, and decide on samples with tail-based retention. Not here: the decision (`retention`).
//!
//! A request that passes both is reported once. Inside of an open local root span, the span's processor reports it. A
//! local root span that begins inside of a middleware's request belongs to that request, which the middleware reports.
//! Unsampled spans have no processor: there the middleware reports too. If only processors reported, a service that
//! samples 1 % of its traces would lose the detail of 99 % of its slow requests. If both reported one request, the first
//! report would decide before all samples and errors are known.
//!
//! A middleware gives its request a random local root span id, and without a trace one of our own, so that it can be listed
//! (`context::in_request`).
//!
//! One rule names the endpoint of a request: the route of its server span at the end, else the label of a scope, else the
//! span's name.

use std::time::Duration;

use super::pending_ends::{Awaited, NotPending, PendingEnds, RootSpanEnd};
use crate::lifecycle::ProfilerHandle;
use spanprof_aggregate::context::{context_row, intern_labels, name_requests_with, ContextRow, Link};
use spanprof_aggregate::hash::hash_bytes;
use spanprof_os::monotonic_ns;
use spanprof_signal::{parking, Context, InlineContext, RawFrame, RawSample, SampleFlags, SampleKind, SyntheticFrame};

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

/// The label of counted requests.
const ENDPOINT_LABEL: &str = "endpoint";
/// The stack of counted requests.
const ENDED_REQUEST: [RawFrame; 1] = [RawFrame::synthetic(SyntheticFrame::Request)];

impl ProfilerHandle {
    /// Reports the end of a request, after its last sample: it is counted in the profile `requests`, and tail-based retention
    /// decides on the samples. Never blocks. A report that does not fit into the ring is lost and counted
    /// (`dropped.submit_ring_full`); the request is then released undecided.
    pub fn request_ended(&self, end: &RequestEnd<'_>) {
        self.submit_end(end, end.local_root_span_id);
    }

    fn submit_end(&self, end: &RequestEnd<'_>, span_id: [u8; 8]) {
        if self.is_running() {
            // Losses are counted by `submit`.
            let _ = self.submit(&entry(end, span_id));
        }
    }

    fn count_unreported_request(&self) {
        if let Some(session) = self.session() {
            session.counters.open_requests_dropped.add(1);
        }
    }

    fn count_unrecorded_await(&self) {
        if let Some(session) = self.session() {
            session.counters.awaits_dropped.add(1);
        }
    }
}

/// The ring entry of an end. `span_id` is that of its samples: of the local root, or of the span that began inside of a
/// middleware's request; zero without one.
fn entry(end: &RequestEnd<'_>, span_id: [u8; 8]) -> RawSample<'static> {
    let context = InlineContext {
        label_set: if end.endpoint.is_empty() { 0 } else { intern_labels(&[(ENDPOINT_LABEL, end.endpoint)]).0 },
        trace_id: end.trace_id,
        span_id,
        local_root_span_id: end.local_root_span_id,
        ..InlineContext::default()
    };
    let duration_ns = u64::try_from(end.duration.as_nanos()).unwrap_or(u64::MAX);
    RawSample {
        kind: SampleKind::RequestEnd,
        flags: SampleFlags(0),
        thread_id: 0,
        time_ns: monotonic_ns(),
        values: [duration_ns, u64::from(end.is_error)],
        key: hash_bytes(0, end.endpoint.as_bytes()),
        context: Context::Inline(context),
        frames: &ENDED_REQUEST,
    }
}

#[cfg(feature = "conformance")]
pub use scripted::report;
#[cfg(feature = "conformance")]
pub(crate) use scripted::{script_ends, take_scripted_end};

/// Ends of requests in conformance cases, which run without a profiler: kept per thread, for the engine of the case.
#[cfg(feature = "conformance")]
mod scripted {
    use super::{entry, RawSample, RequestEnd};
    use std::cell::RefCell;

    thread_local! {
        /// `None` outside of cases.
        static ENDS: RefCell<Option<Vec<RawSample<'static>>>> = const { RefCell::new(None) };
    }

    /// Begins or ends a case.
    pub(crate) fn script_ends(is_case: bool) {
        ENDS.set(is_case.then(Vec::new));
    }

    pub(crate) fn is_scripted() -> bool {
        ENDS.with_borrow(Option::is_some)
    }

    /// Keeps an end; false outside of cases.
    pub(crate) fn keep(end: &RequestEnd<'_>, span_id: [u8; 8]) -> bool {
        ENDS.with_borrow_mut(|ends| ends.as_mut().map(|ends| ends.push(entry(end, span_id))).is_some())
    }

    /// As [`crate::ProfilerHandle::request_ended`].
    pub fn report(end: &RequestEnd<'_>) {
        keep(end, end.local_root_span_id);
    }

    /// The end that was reported since the last call, if it was exactly one.
    pub(crate) fn take_scripted_end() -> Option<RawSample<'static>> {
        let ends = ENDS.with_borrow_mut(|ends| ends.as_mut().map(std::mem::take)).unwrap_or_default();
        <[_; 1]>::try_from(ends).ok().map(|[end]| end)
    }
}

#[cfg(not(feature = "conformance"))]
mod scripted {
    pub(crate) fn is_scripted() -> bool {
        false
    }

    pub(crate) fn keep(_end: &super::RequestEnd<'_>, _span_id: [u8; 8]) -> bool {
        false
    }
}

/// Whether ends are counted.
fn counts_ends() -> bool {
    scripted::is_scripted() || ProfilerHandle::running().is_some_and(|profiler| profiler.is_running())
}

fn submit_end(end: &RequestEnd<'_>, span_id: [u8; 8]) {
    if scripted::keep(end, span_id) {
        return;
    }
    if let Some(profiler) = ProfilerHandle::running() {
        profiler.submit_end(end, span_id);
    }
}

/// Calls that were awaited for less than this part of the request are left out: 1 / divisor.
const AWAITED_DIVISOR: u128 = 100;

/// Submits what the request awaited, right before its end.
fn submit_awaited(end: &RequestEnd<'_>, span_id: [u8; 8], Awaited(awaited): &Awaited) {
    let Some(profiler) = ProfilerHandle::running().filter(|profiler| profiler.is_running()) else { return };
    let is_part = |ns: u64| u128::from(ns) * AWAITED_DIVISOR >= end.duration.as_nanos();
    for (name, values) in awaited.iter().filter(|(_, [ns, _])| is_part(*ns)) {
        let frames = [RawFrame::named(intern_labels(&[("span_name", name)]).0)];
        let _ = profiler.submit(&RawSample {
            kind: SampleKind::Awaited,
            values: *values,
            frames: &frames,
            ..entry(end, span_id)
        });
    }
}

/// See [`crate::binding::begin_client_span`].
pub(crate) fn begin_client_span(row: &ContextRow, span_id: [u8; 8]) {
    if counts_ends() {
        PendingEnds::with(|pending| pending.begin_client_span(row, span_id));
    }
}

/// See [`crate::binding::end_client_span`].
pub(crate) fn end_client_span(span_id: [u8; 8], name: &str, duration: Duration) {
    if counts_ends() {
        PendingEnds::with(|pending| pending.end_client_span(span_id, name, duration));
    }
}

/// See [`crate::binding::begin_request`].
pub(crate) fn begin_request(row: &ContextRow, caller: Link) -> Option<[u8; 8]> {
    if !counts_ends() {
        return None;
    }
    parking::unpark();
    let root = PendingEnds::with(|pending| pending.begin_request(row, caller));
    if root == Err(NotPending::TableFull) {
        if let Some(profiler) = ProfilerHandle::running() {
            profiler.count_unreported_request();
        }
    }
    root.ok()
}

/// See [`crate::binding::forget_request`].
pub(crate) fn forget_request(local_root_span_id: [u8; 8]) {
    PendingEnds::with(|pending| pending.requests.remove(&local_root_span_id));
}

/// See [`crate::binding::end_request`].
pub(crate) fn end_request(end: &RequestEnd<'_>) {
    let removed = PendingEnds::with(|pending| pending.requests.remove(&end.local_root_span_id));
    let Some(request) = removed else { return };
    let Link { trace_id, span_id } = request.span.unwrap_or(request.link);
    let is_error = end.is_error || request.is_error;
    let endpoint = request.endpoint.as_deref().unwrap_or(end.endpoint);
    submit_awaited(&RequestEnd { trace_id, endpoint, ..*end }, span_id, &request.awaited);
    submit_end(&RequestEnd { trace_id, is_error, endpoint, ..*end }, span_id);
}

/// See [`crate::binding::open_request_of`].
pub(crate) fn open_request_of(context: u64) -> Option<[u8; 8]> {
    let row = context_row(context)?;
    PendingEnds::with(|pending| pending.request_of(&row))
}

/// See [`crate::binding::has_open_requests`].
pub(crate) fn has_open_requests() -> bool {
    !PendingEnds::with(|pending| pending.are_none())
}

/// See [`crate::binding::count_unrecorded_await`].
pub(crate) fn count_unrecorded_await() {
    if let Some(profiler) = ProfilerHandle::running() {
        profiler.count_unrecorded_await();
    }
}

/// See [`crate::binding::submit_awaiting`].
pub(crate) fn submit_awaiting(context: u64, frames: &[RawFrame], duration: Duration) {
    let Some(profiler) = ProfilerHandle::running().filter(|profiler| profiler.is_running()) else { return };
    let depth = profiler.config().max_stack_depth as usize;
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    // Losses are counted by `submit`.
    let _ = profiler.submit(&RawSample {
        kind: SampleKind::Wall,
        flags: SampleFlags(SampleFlags::ON_DEMAND),
        thread_id: 0,
        time_ns: monotonic_ns(),
        values: [ns, ns],
        key: SyntheticFrame::Await as u64,
        context: Context::Id(context),
        frames: frames.get(..depth).unwrap_or(frames),
    });
}

/// See [`crate::binding::begin_root_span`].
pub(crate) fn begin_root_span(row: &ContextRow, span: Link) {
    if counts_ends() {
        name_requests_with(name_request);
        parking::unpark();
        PendingEnds::with(|pending| pending.begin_root_span(row, span));
    }
}

/// See [`crate::binding::name_request`].
pub(crate) fn name_request(row: &ContextRow, endpoint: &str) {
    if endpoint.is_empty() || !counts_ends() {
        return;
    }
    PendingEnds::with(|pending| {
        if let Some(span) = pending.span_of(row) {
            span.endpoint = Some(endpoint.to_owned());
        }
    });
}

/// See [`crate::binding::end_root_span`].
pub(crate) fn end_root_span(end: &RootSpanEnd<'_>) {
    let RootSpanEnd { trace_id, span_id: local_root_span_id, duration, is_error, .. } = *end;
    if !counts_ends() {
        return;
    }
    if let Some((endpoint, awaited)) = PendingEnds::with(|pending| pending.end_root_span(end)) {
        let endpoint = endpoint.as_str();
        let ended = RequestEnd { trace_id, local_root_span_id, duration, endpoint, is_error };
        submit_awaited(&ended, local_root_span_id, &awaited);
        submit_end(&ended, local_root_span_id);
    }
}
