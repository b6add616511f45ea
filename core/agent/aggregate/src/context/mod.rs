//! The context table of the process: maps the id that a task or a thread carries to labels and link. Written by host
//! threads, read by the drain thread; neither waits. Works before `start` and in forked children.
//!
//! An id is never reused. Even ids are label sets and permanent. Odd ids are rows with a link, allocated in ascending order.
//! A row is kept while a scope pins it ([`pin_context`]) or samples refer to it; otherwise newer rows evict it (`table`).

mod table;

use std::sync::atomic::AtomicU64;
use std::sync::OnceLock;

use crate::labels::tables;
use spanprof_profile::own_trace;
use spanprof_signal::{parking, Context, Inbox};
use table::{ContextTable, MAX_ROWS, ROW_WORDS};

pub use crate::labels::LabelSetId;
pub use spanprof_profile::Link;

/// Label set and span link of a thread or task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContextRow {
    /// The labels.
    pub label_set: LabelSetId,
    /// Trace and span; all zero when there is none.
    pub link: Link,
    /// Span id of the local root span; all zero when unknown.
    pub local_root_span_id: [u8; 8],
    /// Number of the capture that the code runs in, which nested contexts inherit; 0 for none.
    pub capture: u32,
}

impl ContextRow {
    /// Whether its trace is that of a request without one, see [`in_request`].
    pub fn has_own_trace(&self) -> bool {
        self.local_root_span_id != [0; 8] && self.link.trace_id == own_trace(self.local_root_span_id)
    }

    fn is_labels_only(&self) -> bool {
        self.link == Link::default() && self.local_root_span_id == [0; 8] && self.capture == 0
    }
}

/// Interns labels. `trace_id` and `span_id` with valid hex values are left out, because they are a link: see
/// [`with_labels`].
pub fn intern_labels(labels: &[(&str, &str)]) -> LabelSetId {
    extend_labels(LabelSetId::EMPTY, labels)
}

/// The label set `parent` with `labels` added; a value in `labels` replaces the parent's value of the same key. Valid
/// `trace_id` and `span_id` are left out, as in [`intern_labels`].
pub fn extend_labels(parent: LabelSetId, labels: &[(&str, &str)]) -> LabelSetId {
    if !may_contain_link(labels) {
        return tables().extend(parent, labels);
    }
    let is_label = |(key, value): &&(&str, &str)| trace_id(key, value).is_none() && span_id(key, value).is_none();
    let kept: Vec<_> = labels.iter().filter(is_label).copied().collect();
    tables().extend(parent, &kept)
}

/// The label set `parent` with the labels of `child` added; the child's values win. For prepared labels.
pub fn merge_label_sets(parent: LabelSetId, child: LabelSetId) -> LabelSetId {
    tables().merge(parent, child)
}

/// The labels of a set, sorted by key.
pub fn labels_of(label_set: LabelSetId) -> Vec<(String, String)> {
    tables().labels_of(label_set)
}

/// Labels that the limits cut, replaced or left out since the process began. A label set is complete if this number did not
/// change while it was interned.
pub fn labels_lost() -> u64 {
    let losses = tables().losses();
    losses.values_truncated + losses.values_replaced + losses.labels_dropped
}

/// `parent` with `labels` added; valid `trace_id` and `span_id` among them become the link. Called by `tag_wrapper` of every
/// language for labels that are not prepared.
pub fn with_labels(parent: ContextRow, labels: &[(&str, &str)]) -> ContextRow {
    if parent.local_root_span_id != [0; 8] {
        name_request(&parent, labels);
    }
    let mut row = ContextRow { label_set: extend_labels(parent.label_set, labels), ..parent };
    if !may_contain_link(labels) {
        return row;
    }
    let trace_id = labels.iter().rev().find_map(|(key, value)| trace_id(key, value));
    let span_id = labels.iter().rev().find_map(|(key, value)| span_id(key, value));
    match (trace_id, span_id) {
        (Some(trace_id), span_id) => row.link = Link { trace_id, span_id: span_id.unwrap_or_default() },
        (None, Some(span_id)) => row.link.span_id = span_id,
        (None, None) => {}
    }
    row
}

/// What receives the endpoints that scopes name: the context around the scope, and the endpoint.
static NAMED_REQUESTS: OnceLock<fn(&ContextRow, &str)> = OnceLock::new();

/// From now on `receive` gets each endpoint that a scope inside of a request names.
pub fn name_requests_with(receive: fn(&ContextRow, &str)) {
    NAMED_REQUESTS.get_or_init(|| receive);
}

/// Reports the endpoint among the labels of a scope in the context `around`. [`with_labels`] does it; bindings that prepare labels
/// without their context call it.
pub fn name_request(around: &ContextRow, labels: &[(&str, &str)]) {
    let value = |key: &str| labels.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let (Some(endpoint), Some(receive)) = (value("http.route").or(value("endpoint")), NAMED_REQUESTS.get()) else {
        return;
    };
    let of_around = || labels_of(around.label_set).into_iter().find(|(key, _)| key == "http.request.method");
    let method = value("http.request.method").map(str::to_owned).or_else(|| of_around().map(|(_, value)| value));
    match method.filter(|_| value("http.route").is_some()) {
        Some(method) => receive(around, &format!("{method} {endpoint}")),
        None => receive(around, endpoint),
    }
}

/// The context of a request that a middleware reports, with its local root. A context without a span gets the local root as its
/// span, and without a trace one of our own (W3C Trace Context, section 3.2.2.3).
pub fn in_request(row: ContextRow, root: [u8; 8]) -> ContextRow {
    let Link { trace_id, span_id } = row.link;
    let trace_id = if trace_id == [0; 16] { own_trace(root) } else { trace_id };
    let span_id = if span_id == [0; 8] { root } else { span_id };
    ContextRow { link: Link { trace_id, span_id }, local_root_span_id: root, ..row }
}

/// Merges `child` into `parent`: labels and link of the child win. A span id without trace id replaces the span id within
/// the parent's trace. Called by `tag_wrapper` for prepared labels.
pub fn merge(parent: ContextRow, child: ContextRow) -> ContextRow {
    let label_set = merge_label_sets(parent.label_set, child.label_set);
    let capture = if child.capture == 0 { parent.capture } else { child.capture };
    let child = ContextRow { capture: 0, ..child };
    let (link, local_root_span_id) = if child.is_labels_only() {
        (parent.link, parent.local_root_span_id)
    } else if child.link.trace_id == [0; 16] && child.local_root_span_id == [0; 8] {
        (Link { span_id: child.link.span_id, ..parent.link }, parent.local_root_span_id)
    } else {
        (child.link, child.local_root_span_id)
    };
    ContextRow { label_set, link, local_root_span_id, capture }
}

/// `parent` under the span of an OpenTelemetry context, or without a span if `link` is empty. Within a trace the local root span
/// of `parent` stays; one without a trace, or with its own, is the request of a middleware. `is_local_root`: whether the span is the first of its
/// trace in this process; if that is unknown, it is one unless a local root span stays.
pub fn under_span(parent: ContextRow, link: Link, is_local_root: Option<bool>) -> ContextRow {
    if link.is_empty() && parent.has_own_trace() {
        return parent;
    }
    let is_in_trace = [link.trace_id, [0; 16]].contains(&parent.link.trace_id) || parent.has_own_trace();
    let inherited = if is_in_trace { parent.local_root_span_id } else { [0; 8] };
    let is_local_root = is_local_root.map_or(inherited == [0; 8], |is_first| is_first && !parent.has_own_trace());
    let local_root_span_id = if is_local_root { link.span_id } else { inherited };
    ContextRow { link, local_root_span_id, ..parent }
}

/// Ids of label sets start above the integers that languages cache as shared objects (up to a few hundred), so that a
/// binding can distinguish two of its values with the same id.
const FIRST_LABELS_ID: u64 = 1024;

/// An id for `row`, which a task or a thread carries: 0 for the empty row. Never reused. A row without a link always gets
/// the same id and never expires. A row with a link expires after about [`MAX_CONTEXTS`] newer ones, unless it is pinned or
/// sampled meanwhile. If [`MAX_CONTEXTS`] rows are pinned, the new context is opened without its link, and counted.
pub fn open_context(row: ContextRow) -> u64 {
    if row != ContextRow::default() {
        parking::unpark();
    }
    if !row.is_labels_only() {
        if let Some(id) = TABLE.open(row) {
            return id;
        }
    }
    match row.label_set {
        LabelSetId::EMPTY => 0,
        label_set => FIRST_LABELS_ID + (u64::from(label_set.0) << 1),
    }
}

/// Pins the row of `id` until the value is dropped, on any thread. Every open scope pins its row, so that it outlives any
/// number of newer contexts.
pub fn pin_context(id: u64) -> PinnedContext {
    PinnedContext(if id & 1 == 1 && TABLE.pin(id) { id } else { 0 })
}

/// See [`pin_context`].
#[derive(Debug, Default)]
pub struct PinnedContext(u64);

impl Drop for PinnedContext {
    fn drop(&mut self) {
        if self.0 != 0 {
            TABLE.unpin(self.0);
        }
    }
}

/// The row of `id`; `None` when it expired (never another context's row).
pub fn context_row(id: u64) -> Option<ContextRow> {
    if id & 1 == 0 {
        return row_of_labels(id);
    }
    TABLE.row(id)
}

/// As [`context_row`], for a sample: sets the reference bit of the row.
pub fn sampled_context_row(id: u64) -> Option<ContextRow> {
    if id & 1 == 0 {
        return row_of_labels(id);
    }
    TABLE.sampled_row(id)
}

/// The row of a sample's context; `None` when it expired.
pub fn row_of_sample(context: &Context) -> Option<ContextRow> {
    match context {
        Context::None => Some(ContextRow::default()),
        Context::Id(id) => sampled_context_row(*id),
        Context::Inline(inline) => Some(ContextRow {
            label_set: LabelSetId(inline.label_set),
            link: Link { trace_id: inline.trace_id, span_id: inline.span_id },
            local_root_span_id: inline.local_root_span_id,
            capture: inline.capture,
        }),
    }
}

fn row_of_labels(id: u64) -> Option<ContextRow> {
    let label_set = if id == 0 { 0 } else { u32::try_from(id.checked_sub(FIRST_LABELS_ID)? >> 1).ok()? };
    Some(ContextRow { label_set: LabelSetId(label_set), ..ContextRow::default() })
}

/// One pass over the keys, since most labels contain no link.
fn may_contain_link(labels: &[(&str, &str)]) -> bool {
    labels.iter().any(|(key, _)| matches!(*key, "trace_id" | "span_id"))
}

fn trace_id(key: &str, value: &str) -> Option<[u8; 16]> {
    if key == "trace_id" {
        parse_id(value)
    } else {
        None
    }
}

fn span_id(key: &str, value: &str) -> Option<[u8; 8]> {
    if key == "span_id" {
        parse_id(value)
    } else {
        None
    }
}

/// Trace and span of two ids in hex; an id that is not valid is left out.
pub fn link_of_hex(trace_id: &str, span_id: &str) -> Link {
    Link { trace_id: parse_id(trace_id).unwrap_or_default(), span_id: parse_id(span_id).unwrap_or_default() }
}

/// Parses an id of exactly `N` bytes in hex; `None` for other text and for zeroes only.
pub fn parse_id<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut id = [0; N];
    hex::decode_to_slice(text, &mut id).ok()?;
    (id != [0; N]).then_some(id)
}

/// The hex digits of an id; empty for zeroes only.
pub fn format_id(id: &[u8]) -> String {
    if id.iter().all(|byte| *byte == 0) {
        return String::new();
    }
    hex::encode(id)
}

/// Contexts with a span: those of open scopes, recently sampled ones, and the newest.
pub const MAX_CONTEXTS: u32 = MAX_ROWS as u32;
static ROWS: [AtomicU64; MAX_ROWS * ROW_WORDS] = [const { AtomicU64::new(0) }; MAX_ROWS * ROW_WORDS];
static TABLE: ContextTable = ContextTable::new(&ROWS, MAX_CONTEXTS);

/// Sets the number of rows; existing ids stay valid or read as expired.
#[cfg(any(test, feature = "testing"))]
pub fn set_max_contexts(max_contexts: u32) {
    TABLE.set_rows(max_contexts);
}

/// Sets the inbox that wakes the drain thread before rows of undrained samples are evicted.
pub fn set_drain_inbox(inbox: &'static Inbox) {
    TABLE.set_drain_inbox(inbox);
}

/// Rows with a link, and contexts that lost their link, since the process began.
pub fn opened_and_refused() -> (u64, u64) {
    TABLE.opened_and_refused()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn trace_id_and_span_id_among_labels_become_the_link() {
        let row = with_labels(ContextRow::default(), &[("trace_id", TRACE), ("route", "/linked"), ("span_id", SPAN)]);
        assert_eq!(row.link.span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!(row.link.trace_id[..2], [0x4b, 0xf9]);
        assert_eq!(labels_of(row.label_set), [("route".to_owned(), "/linked".to_owned())]);
        assert_eq!(row.label_set, intern_labels(&[("route", "/linked"), ("trace_id", TRACE)]));
    }

    #[test]
    fn a_trace_id_that_is_not_sixteen_bytes_of_hex_stays_a_label() {
        for value in ["xyz", "00000000000000000000000000000000", "4bf92f3577b34da6a3ce929d0e0e473", "é"] {
            let row = with_labels(ContextRow::default(), &[("trace_id", value)]);
            assert_eq!(row.link, Link::default());
            assert_eq!(labels_of(row.label_set), [("trace_id".to_owned(), value.to_owned())]);
        }
    }

    #[test]
    fn malformed_hex_ids_are_absent() {
        for text in ["", "4bf9", "zzf067aa0ba902b7", "éééééééé", "+1f067aa0ba902b7"] {
            assert_eq!(parse_id::<8>(text), None);
        }
    }

    #[test]
    fn an_inner_scope_inherits_the_link_that_it_does_not_replace() {
        let outer = with_labels(ContextRow::default(), &[("trace_id", TRACE), ("span_id", SPAN), ("a", "1")]);
        let inner = with_labels(outer, &[("b", "2")]);
        assert_eq!(inner.link, outer.link);
        let prepared = with_labels(ContextRow::default(), &[("b", "2")]);
        assert_eq!(merge(outer, prepared), inner);
        assert_eq!(merge(prepared, outer).link, outer.link);
        let span_alone = [("span_id", "00000000000000ff")];
        let prepared = with_labels(ContextRow::default(), &span_alone);
        assert_eq!(merge(outer, prepared), with_labels(outer, &span_alone));
        assert_eq!(merge(outer, prepared).link.trace_id, outer.link.trace_id);
    }

    #[test]
    fn labels_without_a_link_have_one_permanent_id() {
        let row = with_labels(ContextRow::default(), &[("permanent", "yes")]);
        let id = open_context(row);
        assert_eq!(open_context(row), id);
        assert_eq!(context_row(id), Some(row));
        assert_eq!(open_context(ContextRow::default()), 0);
        assert_eq!(context_row(0), Some(ContextRow::default()));
    }

    #[test]
    fn within_a_trace_the_local_root_span_stays() {
        let link = |trace, span| Link { trace_id: [trace; 16], span_id: [span; 8] };
        let first = under_span(ContextRow::default(), link(1, 2), None);
        assert_eq!(first.local_root_span_id, [2; 8]);
        assert_eq!(under_span(first, link(1, 3), None).local_root_span_id, [2; 8]);
        assert_eq!(under_span(first, link(1, 3), Some(true)).local_root_span_id, [3; 8]);
        assert_eq!(under_span(first, link(4, 5), Some(false)).local_root_span_id, [0; 8], "of another trace");
        assert_eq!(under_span(first, Link::default(), None).local_root_span_id, [0; 8]);
        let request = in_request(ContextRow { capture: 7, ..ContextRow::default() }, [9; 8]);
        assert_eq!(under_span(request, Link::default(), None), request, "the request of a middleware has its own span");
        for is_local_root in [None, Some(false), Some(true)] {
            let inside = under_span(request, link(1, 2), is_local_root);
            assert_eq!((inside.local_root_span_id, inside.capture), ([9; 8], 7), "the request of a middleware");
        }
    }
}
