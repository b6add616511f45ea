//! The end of a request, which the host's threads report: by a span processor, or by the middleware of a web framework. Ends are
//! counted by endpoint, and decide on samples with tail-based retention. Not here: the decision (`retention`).
//!
//! A request that passes both is reported once. Inside of an open local root span, the span's processor reports it. A
//! local root span that begins inside of a middleware's request belongs to that request, which the middleware reports.
//! Unsampled spans have no processor: there the middleware reports too. If only processors reported, a service that
//! samples 1 % of its traces would lose the detail of 99 % of its slow requests. If both reported one request, the first
//! report would decide before all samples and errors are known.
//!
//! A middleware gives its request a random local root span id, which is never exported: random trace ids would appear in
//! profiles as traces that no trace store has.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::ProfilerHandle;
use spanprof_aggregate::context::{intern_labels, ContextRow, Link};
use spanprof_aggregate::hash::{hash_bytes, WordMap};
use spanprof_os::{monotonic_ns, random, PerProcess};
use spanprof_signal::{Context, InlineContext, RawFrame, RawSample, SampleFlags, SampleKind, SyntheticFrame};

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
        self.submit_end(end, EndedSpan::Root(end.local_root_span_id));
    }

    fn submit_end(&self, end: &RequestEnd<'_>, span: EndedSpan) {
        if self.is_running() {
            // Losses are counted by `submit`.
            let _ = self.submit(&entry(end, span));
        }
    }

    fn count_unreported_request(&self) {
        if let Some(session) = self.session() {
            session.counters.open_requests_dropped.add(1);
        }
    }
}

/// Span id of the request's samples; zero without one.
#[derive(Clone, Copy)]
enum EndedSpan {
    /// Of the local root span, or of the one that began inside of a middleware's request.
    Root([u8; 8]),
    /// Of the caller, or of the span around a middleware: further requests may have it.
    Outside([u8; 8]),
}

/// The ring entry of an end.
fn entry(end: &RequestEnd<'_>, span: EndedSpan) -> RawSample<'static> {
    let (span_id, flags) = match span {
        EndedSpan::Root(span_id) => (span_id, 0),
        EndedSpan::Outside(span_id) => (span_id, SampleFlags::SPAN_OUTSIDE),
    };
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
        flags: SampleFlags(flags),
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
    use super::{entry, EndedSpan, RawSample, RequestEnd};
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
    pub(crate) fn keep(end: &RequestEnd<'_>, span: EndedSpan) -> bool {
        ENDS.with_borrow_mut(|ends| ends.as_mut().map(|ends| ends.push(entry(end, span))).is_some())
    }

    /// As [`crate::ProfilerHandle::request_ended`].
    pub fn report(end: &RequestEnd<'_>) {
        keep(end, EndedSpan::Root(end.local_root_span_id));
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

    pub(crate) fn keep(_end: &super::RequestEnd<'_>, _span: super::EndedSpan) -> bool {
        false
    }
}

/// Beyond these, requests of middlewares are not reported but counted (`dropped.open_requests`), and open spans are forgotten.
const MAX_PENDING: usize = 65_536;

/// A request of a middleware.
struct PendingRequest {
    /// Trace and span of its samples, without a span that began inside of it.
    link: Link,
    /// The first local root span that began inside of it.
    span: Option<Link>,
    /// Whether that span ended with an error.
    is_error: bool,
}

/// Why a middleware does not report the end of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotPending {
    /// Another middleware or a span processor does.
    ReportedElsewhere,
    /// [`MAX_PENDING`] are open.
    TableFull,
}

/// A local root span with a processor.
struct PendingSpan {
    trace_id: [u8; 16],
    /// Local root of the request that it belongs to.
    request: Option<[u8; 8]>,
}

/// The requests and local root spans whose end will be reported, by their ids.
#[derive(Default)]
struct PendingEnds {
    requests: WordMap<[u8; 8], PendingRequest>,
    spans: WordMap<[u8; 8], PendingSpan>,
}

impl PendingEnds {
    /// Locked for some lookups at most. A forked child has its own: another thread may have held the lock at the fork, and the
    /// requests that are open belong to the parent.
    fn with<R>(body: impl FnOnce(&mut Self) -> R) -> R {
        static PENDING: PerProcess<Mutex<PendingEnds>> = PerProcess::empty();
        PENDING.with(|pending| body(&mut pending.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether the end of the request that `row` belongs to will be reported.
    fn contains(&self, row: &ContextRow) -> bool {
        let (root, link) = (row.local_root_span_id, row.link);
        // Where the local root is unknown, it is a span of the same trace.
        let is_in_trace =
            || root == [0; 8] && link.trace_id != [0; 16] && self.spans.values().any(|s| s.trace_id == link.trace_id);
        self.requests.contains_key(&root)
            || self.spans.contains_key(&root)
            || self.spans.contains_key(&link.span_id)
            || is_in_trace()
    }

    fn begin_request(&mut self, row: &ContextRow, caller: Link) -> Result<[u8; 8], NotPending> {
        if self.contains(row) {
            return Err(NotPending::ReportedElsewhere);
        }
        if self.requests.len() >= MAX_PENDING {
            return Err(NotPending::TableFull);
        }
        let root = match row.local_root_span_id {
            [0, 0, 0, 0, 0, 0, 0, 0] => random::number().max(1).to_be_bytes(),
            of_unsampled_span => of_unsampled_span,
        };
        let link = if row.link.is_empty() { caller } else { row.link };
        self.requests.insert(root, PendingRequest { link, span: None, is_error: false });
        Ok(root)
    }

    fn begin_root_span(&mut self, row: &ContextRow, span: Link) {
        if self.spans.len() >= MAX_PENDING {
            self.spans.clear();
        }
        let root = row.local_root_span_id;
        let request = self.requests.get_mut(&root).filter(|request| request.span.is_none()).map(|request| {
            request.span = Some(span);
            root
        });
        self.spans.insert(span.span_id, PendingSpan { trace_id: span.trace_id, request });
    }

    /// Whether the end of the span is the end of its request.
    fn end_root_span(&mut self, span_id: [u8; 8], is_error: bool) -> bool {
        let Some(request) = self.spans.remove(&span_id).and_then(|span| span.request) else { return true };
        // A request that ended before its span has been reported already.
        if let Some(request) = self.requests.get_mut(&request) {
            request.is_error |= is_error;
        }
        false
    }
}

/// Whether ends are counted.
fn counts_ends() -> bool {
    scripted::is_scripted() || ProfilerHandle::running().is_some_and(|profiler| profiler.is_running())
}

fn submit_end(end: &RequestEnd<'_>, span: EndedSpan) {
    if scripted::keep(end, span) {
        return;
    }
    if let Some(profiler) = ProfilerHandle::running() {
        profiler.submit_end(end, span);
    }
}

/// See [`crate::binding::begin_request`].
pub(crate) fn begin_request(row: &ContextRow, caller: Link) -> Option<[u8; 8]> {
    if !counts_ends() {
        return None;
    }
    let root = PendingEnds::with(|pending| pending.begin_request(row, caller));
    if root == Err(NotPending::TableFull) {
        if let Some(profiler) = ProfilerHandle::running() {
            profiler.count_unreported_request();
        }
    }
    root.ok()
}

/// See [`crate::binding::end_request`].
pub(crate) fn end_request(end: &RequestEnd<'_>) {
    let removed = PendingEnds::with(|pending| pending.requests.remove(&end.local_root_span_id));
    let Some(request) = removed else { return };
    let (trace_id, span) = match request.span {
        Some(root) => (root.trace_id, EndedSpan::Root(root.span_id)),
        None => (request.link.trace_id, EndedSpan::Outside(request.link.span_id)),
    };
    let is_error = end.is_error || request.is_error;
    submit_end(&RequestEnd { trace_id, is_error, ..*end }, span);
}

/// See [`crate::binding::begin_root_span`].
pub(crate) fn begin_root_span(row: &ContextRow, span: Link) {
    if counts_ends() {
        PendingEnds::with(|pending| pending.begin_root_span(row, span));
    }
}

/// See [`crate::binding::end_root_span`].
pub(crate) fn end_root_span(end: &RequestEnd<'_>) {
    if counts_ends() && PendingEnds::with(|pending| pending.end_root_span(end.local_root_span_id, end.is_error)) {
        submit_end(end, EndedSpan::Root(end.local_root_span_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: [u8; 16] = [7; 16];

    #[test]
    fn a_forked_child_begins_requests_while_a_thread_of_the_parent_held_the_lock() {
        spanprof_signal::count_forks();
        let begin = |pending: &mut PendingEnds| pending.begin_request(&ContextRow::default(), Link::default());
        PendingEnds::with(|_| {
            spanprof_os::testing::in_child(|| assert!(PendingEnds::with(begin).is_ok()));
        });
    }

    fn span(id: u8) -> Link {
        Link { trace_id: TRACE, span_id: [id; 8] }
    }

    /// The context inside of a span whose local root is `root`.
    fn inside(link: Link, root: [u8; 8]) -> ContextRow {
        ContextRow { link, local_root_span_id: root, ..ContextRow::default() }
    }

    #[test]
    fn of_nested_middlewares_only_the_outermost_reports_the_request() {
        let mut pending = PendingEnds::default();
        let first = pending.begin_request(&ContextRow::default(), Link::default()).unwrap();
        assert_eq!(
            pending.begin_request(&inside(Link::default(), first), Link::default()),
            Err(NotPending::ReportedElsewhere)
        );
        let second = pending.begin_request(&ContextRow::default(), Link::default()).unwrap();
        assert_ne!(first, second);
        assert!(pending.requests.remove(&first).is_some() && pending.requests.remove(&second).is_some());
    }

    #[test]
    fn inside_of_a_span_with_a_processor_the_processor_reports_the_request() {
        for row in [inside(span(1), [1; 8]), inside(span(2), [1; 8]), inside(span(1), [0; 8]), inside(span(2), [0; 8])]
        {
            let mut pending = PendingEnds::default();
            pending.begin_root_span(&ContextRow::default(), span(1));
            assert_eq!(pending.begin_request(&row, Link::default()), Err(NotPending::ReportedElsewhere), "{row:?}");
            assert!(pending.end_root_span([1; 8], false));
            assert!(pending.spans.is_empty());
        }
    }

    #[test]
    fn inside_of_an_unsampled_span_the_middleware_reports_the_request() {
        let mut pending = PendingEnds::default();
        assert_eq!(pending.begin_request(&inside(span(1), [1; 8]), Link::default()), Ok([1; 8]));
        assert!(pending.begin_request(&inside(span(2), [0; 8]), Link::default()).is_ok());
    }

    #[test]
    fn a_request_has_the_span_of_its_caller_unless_it_begins_in_another_one() {
        for (row, expected) in [(ContextRow::default(), span(9)), (inside(span(1), [1; 8]), span(1))] {
            let mut pending = PendingEnds::default();
            let root = pending.begin_request(&row, span(9)).unwrap();
            assert_eq!(pending.requests.remove(&root).unwrap().link, expected);
        }
    }

    #[test]
    fn a_span_that_begins_in_a_request_is_reported_with_it_and_further_ones_report_themselves() {
        for ends_first in [true, false] {
            let mut pending = PendingEnds::default();
            let root = pending.begin_request(&ContextRow::default(), Link::default()).unwrap();
            pending.begin_root_span(&inside(Link::default(), root), span(1));
            pending.begin_root_span(&inside(Link::default(), root), span(2));
            assert!(pending.end_root_span([2; 8], true));
            if ends_first {
                assert!(!pending.end_root_span([1; 8], true));
            }
            let request = pending.requests.remove(&root).unwrap();
            assert_eq!((request.span, request.is_error), (Some(span(1)), ends_first));
            assert_eq!(pending.end_root_span([1; 8], false), ends_first);
        }
    }

    #[test]
    fn the_number_of_requests_and_spans_without_an_end_is_bounded() {
        let mut pending = PendingEnds::default();
        for number in 0..MAX_PENDING as u64 + 10 {
            let root = pending.begin_request(&ContextRow::default(), Link::default());
            assert_eq!(root.err(), (number >= MAX_PENDING as u64).then_some(NotPending::TableFull));
            let span = Link { trace_id: TRACE, span_id: (number + 1).to_be_bytes() };
            pending.begin_root_span(&ContextRow::default(), span);
            assert!(pending.spans.len() <= MAX_PENDING);
        }
    }
}
