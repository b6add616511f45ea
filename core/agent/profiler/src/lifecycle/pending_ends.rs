//! The requests of middlewares and the local root spans whose end will be reported, with what is known of them until then. Not here:
//! the report (`request`).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spanprof_aggregate::context::{in_request, ContextRow, Link};
use spanprof_aggregate::hash::WordMap;
use spanprof_os::{random, PerProcess};

/// The end of a local root span, as its processor reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootSpanEnd<'a> {
    /// W3C trace id.
    pub trace_id: [u8; 16],
    /// Its span id.
    pub span_id: [u8; 8],
    /// Time from its start to its end.
    pub duration: Duration,
    /// Its name.
    pub name: &'a str,
    /// Attribute `http.request.method`, "" without one.
    pub method: &'a str,
    /// Attribute `http.route`, "" without one.
    pub route: &'a str,
    /// Whether its status is `ERROR`.
    pub is_error: bool,
}

/// Beyond these, requests of middlewares are not reported but counted (`dropped.open_requests`), and open spans are forgotten.
const MAX_PENDING: usize = 65_536;
/// Names of calls that a request awaits; further ones are `other`.
const MAX_NAMES: usize = 16;

/// A request of a middleware.
#[derive(Default)]
pub(super) struct PendingRequest {
    /// Trace and span of its samples, without a span that began inside of it.
    pub link: Link,
    /// The first local root span that began inside of it.
    pub span: Option<Link>,
    /// Route of that span, once it ended.
    pub endpoint: Option<String>,
    /// Whether that span ended with an error.
    pub is_error: bool,
    pub awaited: Awaited,
}

/// Why a middleware does not report the end of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPending {
    /// Another middleware or a span processor does.
    ReportedElsewhere,
    /// [`MAX_PENDING`] are open.
    TableFull,
}

/// A local root span with a processor.
#[derive(Default)]
pub(super) struct PendingSpan {
    trace_id: [u8; 16],
    /// Local root of the request that it belongs to.
    request: Option<[u8; 8]>,
    /// The endpoint that a scope inside of it named.
    pub endpoint: Option<String>,
    awaited: Awaited,
}

/// The calls that a request awaited, by the name of their spans: nanoseconds and number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Awaited(pub Vec<(String, [u64; 2])>);

impl Awaited {
    fn add(&mut self, name: &str, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let at = self.0.iter().position(|(call, _)| call == name).unwrap_or_else(|| {
            self.0.push((if self.0.len() < MAX_NAMES { name } else { "other" }.to_owned(), [0; 2]));
            self.0.len() - 1
        });
        // Beyond the limit, all have the last entry.
        let [sum_ns, calls] = &mut self.0[at.min(MAX_NAMES)].1;
        (*sum_ns, *calls) = (sum_ns.saturating_add(ns), *calls + 1);
        self.0.truncate(MAX_NAMES + 1);
    }
}

/// The requests and local root spans whose end will be reported, by their ids.
#[derive(Default)]
pub(super) struct PendingEnds {
    pub requests: WordMap<[u8; 8], PendingRequest>,
    spans: WordMap<[u8; 8], PendingSpan>,
    /// Open client spans, with the local root and the span that they began in.
    clients: WordMap<[u8; 8], [[u8; 8]; 2]>,
}

impl PendingEnds {
    /// Locked for some lookups at most. A forked child has its own: another thread may have held the lock at the fork, and the
    /// requests that are open belong to the parent.
    pub fn with<R>(body: impl FnOnce(&mut Self) -> R) -> R {
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

    pub fn begin_request(&mut self, row: &ContextRow, caller: Link) -> Result<[u8; 8], NotPending> {
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
        let trace_id = if row.link.is_empty() { caller.trace_id } else { row.link.trace_id };
        let ContextRow { link, .. } = in_request(ContextRow { link: Link { trace_id, ..row.link }, ..*row }, root);
        self.requests.insert(root, PendingRequest { link, ..PendingRequest::default() });
        Ok(root)
    }

    pub fn begin_root_span(&mut self, row: &ContextRow, span: Link) {
        if self.spans.len() >= MAX_PENDING {
            self.spans.clear();
        }
        let root = row.local_root_span_id;
        let request = self.requests.get_mut(&root).filter(|request| request.span.is_none()).map(|request| {
            request.span = Some(span);
            root
        });
        self.spans.insert(span.span_id, PendingSpan { trace_id: span.trace_id, request, ..PendingSpan::default() });
    }

    /// The open local root span that `row` belongs to.
    pub fn span_of(&mut self, row: &ContextRow) -> Option<&mut PendingSpan> {
        let ids = [row.local_root_span_id, row.link.span_id];
        let open = ids.into_iter().find(|id| self.spans.contains_key(id))?;
        self.spans.get_mut(&open)
    }

    pub fn are_none(&self) -> bool {
        self.requests.is_empty() && self.spans.is_empty()
    }

    /// The id of the open request that `row` belongs to.
    pub fn request_of(&self, row: &ContextRow) -> Option<[u8; 8]> {
        let ids = [row.local_root_span_id, row.link.span_id];
        ids.into_iter().find(|id| self.requests.contains_key(id) || self.spans.contains_key(id))
    }

    pub fn begin_client_span(&mut self, row: &ContextRow, span_id: [u8; 8]) {
        if self.clients.len() >= MAX_PENDING {
            self.clients.clear();
        }
        if self.request_of(row).is_some() {
            self.clients.insert(span_id, [row.local_root_span_id, row.link.span_id]);
        }
    }

    /// `span_id` may be that of a local root span: then it is no request, since it is a call.
    pub fn end_client_span(&mut self, span_id: [u8; 8], name: &str, duration: Duration) {
        let of_request = self.spans.remove(&span_id).and_then(|span| span.request).map(|request| [request; 2]);
        let begun_in = self.clients.remove(&span_id).or(of_request).filter(|_| !name.is_empty());
        for id in begun_in.into_iter().flatten() {
            let of_span = self.spans.get_mut(&id).map(|span| (&mut span.awaited, span.request));
            let awaited = match of_span {
                // The request reports it.
                Some((_, Some(request))) => self.requests.get_mut(&request).map(|request| &mut request.awaited),
                Some((awaited, None)) => Some(awaited),
                None => self.requests.get_mut(&id).map(|request| &mut request.awaited),
            };
            if let Some(awaited) = awaited {
                return awaited.add(name, duration);
            }
        }
    }

    /// The endpoint of the request that ends with its span, and what it awaited; `None` if a middleware reports it.
    pub fn end_root_span(&mut self, end: &RootSpanEnd<'_>) -> Option<(String, Awaited)> {
        let ended = self.spans.remove(&end.span_id);
        let route = (!end.route.is_empty()).then(|| format!("{} {}", end.method, end.route).trim_start().to_owned());
        let PendingSpan { request, endpoint, awaited, .. } = ended.unwrap_or_default();
        let Some(request) = request else {
            return Some((route.or(endpoint).unwrap_or_else(|| end.name.to_owned()), awaited));
        };
        // A request that ended before its span has been reported already.
        if let Some(request) = self.requests.get_mut(&request) {
            request.is_error |= end.is_error;
            request.endpoint = route;
        }
        None
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

    /// The end of the span `id` without a route.
    fn ended(id: u8, is_error: bool) -> RootSpanEnd<'static> {
        RootSpanEnd { trace_id: TRACE, span_id: [id; 8], name: "span", is_error, ..RootSpanEnd::default() }
    }

    #[test]
    fn a_request_is_named_by_the_route_of_its_span_else_by_a_scope_else_by_the_name_of_the_span() {
        let with_route = RootSpanEnd { method: "GET", route: "/cart/{id}", ..ended(1, false) };
        for (end, scope, expected) in [
            (with_route, Some("GET /scope"), "GET /cart/{id}"),
            (ended(1, false), Some("GET /scope"), "GET /scope"),
            (ended(1, false), None, "span"),
        ] {
            let mut pending = PendingEnds::default();
            pending.begin_root_span(&ContextRow::default(), span(1));
            let inside = inside(span(2), [1; 8]);
            pending.span_of(&inside).unwrap().endpoint = scope.map(str::to_owned);
            pending.begin_client_span(&inside, [9; 8]);
            pending.end_client_span([9; 8], "GET", Duration::from_nanos(7));
            let awaited = Awaited(vec![("GET".to_owned(), [7, 1])]);
            assert_eq!(pending.end_root_span(&end), Some((expected.to_owned(), awaited)));
        }
    }

    #[test]
    fn the_calls_of_a_request_are_summed_by_name_and_many_names_are_one() {
        let mut awaited = Awaited::default();
        for call in 0..100 {
            awaited.add(&format!("call {}", call % 25), Duration::from_nanos(1));
        }
        assert_eq!(awaited.0.len(), MAX_NAMES + 1);
        assert_eq!((&awaited.0[0], &awaited.0[16]), (&("call 0".to_owned(), [4, 4]), &("other".to_owned(), [36, 36])));
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
            assert_eq!(pending.end_root_span(&ended(1, false)), Some(("span".to_owned(), Awaited::default())));
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
    fn a_request_has_a_span_of_its_own_in_the_trace_of_its_caller_unless_it_begins_in_another_span() {
        let mut pending = PendingEnds::default();
        let root = pending.begin_request(&ContextRow::default(), span(9)).unwrap();
        assert_eq!(pending.requests[&root].link, Link { trace_id: TRACE, span_id: root });
        let root = pending.begin_request(&inside(span(1), [1; 8]), span(9)).unwrap();
        assert_eq!((root, pending.requests[&root].link), ([1; 8], span(1)));
        let root = pending.begin_request(&ContextRow::default(), Link::default()).unwrap();
        let link = pending.requests[&root].link;
        assert!(link.span_id == root && link.trace_id != [0; 16]);
    }

    #[test]
    fn a_span_that_begins_in_a_request_is_reported_with_it_and_further_ones_report_themselves() {
        for ends_first in [true, false] {
            let mut pending = PendingEnds::default();
            let root = pending.begin_request(&ContextRow::default(), Link::default()).unwrap();
            pending.begin_root_span(&inside(Link::default(), root), span(1));
            pending.begin_root_span(&inside(Link::default(), root), span(2));
            assert!(pending.end_root_span(&ended(2, true)).is_some());
            if ends_first {
                assert_eq!(pending.end_root_span(&ended(1, true)), None);
            }
            let request = pending.requests.remove(&root).unwrap();
            assert_eq!((request.span, request.is_error), (Some(span(1)), ends_first));
            assert_eq!(pending.end_root_span(&ended(1, false)).is_some(), ends_first);
        }
    }

    #[test]
    fn a_call_without_a_parent_is_no_request_but_one_that_its_request_awaits() {
        let mut pending = PendingEnds::default();
        pending.begin_root_span(&ContextRow::default(), span(1));
        pending.end_client_span(span(1).span_id, "GET", Duration::from_nanos(7));
        assert!(pending.spans.is_empty());
        let root = pending.begin_request(&ContextRow::default(), Link::default()).unwrap();
        pending.begin_root_span(&inside(Link::default(), root), span(1));
        pending.end_client_span(span(1).span_id, "GET", Duration::from_nanos(7));
        assert_eq!(pending.requests[&root].awaited, Awaited(vec![("GET".to_owned(), [7, 1])]));
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
