//! Computes context ids: of labels on top of a parent context, of a span link, and of the context after one of them ends. The
//! context table is the core's ([`spanprof::context`]); the context variable that holds an id is [`crate::ffi::variable`].
//! Called by the scope type and by the module's context functions; holds no state.

use spanprof::context::{self as table, ContextRow, LabelSetId, Link};

/// Interned labels, and optionally a span link, to merge into any parent context.
pub type PreparedLabels = ContextRow;

/// The labels of one `tag_wrapper` call, interned.
pub fn prepare(labels: &[(&str, &str)]) -> PreparedLabels {
    table::with_labels(ContextRow::default(), labels)
}

/// The context row of `id`; the empty row when it expired.
pub fn row(id: u64) -> ContextRow {
    if id == 0 {
        return ContextRow::default();
    }
    table::context_row(id).unwrap_or_default()
}

/// The id of `labels` on top of `parent`, and whether that id may expire.
pub fn child(parent: u64, labels: &PreparedLabels) -> (u64, bool) {
    let row = if parent == 0 { *labels } else { table::merge(row(parent), *labels) };
    (table::open_context(row), row.link != Link::default())
}

/// Whether the row of an id that may expire still exists.
pub fn is_live(id: u64) -> bool {
    table::context_row(id).is_some()
}

/// The id to restore when a scope ends while a context set inside it is still current: that context without the scope's
/// labels. `None` when `current` does not derive from the scope, as in another `Context`: then nothing changes.
pub fn without_labels(current: u64, written: u64, previous: u64) -> Option<u64> {
    let (current, written, previous) = (row(current), row(written), row(previous));
    if current.label_set != written.label_set || written.label_set == previous.label_set {
        return None;
    }
    let restored =
        if current.link == written.link { previous } else { ContextRow { label_set: previous.label_set, ..current } };
    Some(table::open_context(restored))
}

/// The id of `parent`'s labels and `labels`, under another span link.
pub fn linked(parent: u64, link: Link, local_root_span_id: [u8; 8], labels: &PreparedLabels) -> u64 {
    let label_set = table::merge_label_sets(row(parent).label_set, labels.label_set);
    table::open_context(ContextRow { label_set, link, local_root_span_id })
}

/// As [`without_labels`], for a span that ends while labels set inside it are still current.
pub fn without_link(current: u64, written: u64, previous: u64) -> Option<u64> {
    let (current, written, previous) = (row(current), row(written), row(previous));
    if current.link != written.link || written.link == previous.link {
        return None;
    }
    let restored = if current.label_set == written.label_set {
        previous
    } else {
        ContextRow { label_set: current.label_set, ..previous }
    };
    Some(table::open_context(restored))
}

/// The id of `parent` without the label `key`, if its value is `value` (`None`: any value).
pub fn without_label(parent: u64, key: &str, value: Option<&str>) -> u64 {
    let row = row(parent);
    let labels = table::labels_of(row.label_set);
    let is_removed = |(k, v): &&(String, String)| k == key && value.is_none_or(|value| value == v);
    let kept: Vec<(&str, &str)> =
        labels.iter().filter(|label| !is_removed(label)).map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let label_set = if kept.len() == labels.len() { row.label_set } else { table::intern_labels(&kept) };
    table::open_context(ContextRow { label_set, ..row })
}

/// The labels of a row, sorted by key.
pub fn labels_of(label_set: LabelSetId) -> Vec<(String, String)> {
    table::labels_of(label_set)
}
