//! The context table of the process: what the id carried by a task or a thread stands for. Written by host threads, read
//! by the drain thread; neither waits. Works before `start` and in forked children.
//!
//! # Laws
//! 1. An id is never reused. Even ids are label sets and permanent; odd ones are rows with a link, given in rising order.
//! 2. A row is claimed before it is written and carries its id last: a reader gets the row of the id it asked for, or
//!    nothing. A row being written by one thread is left alone by all others.

use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use crate::labels::tables;
pub use crate::labels::LabelSetId;
pub use spanprof_profile::Link;

/// What a sample knows of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContextRow {
    /// The labels.
    pub label_set: LabelSetId,
    /// Trace and span; all zero when there is none.
    pub link: Link,
    /// Span id of the local root span; all zero when unknown.
    pub local_root_span_id: [u8; 8],
}

impl ContextRow {
    fn is_labels_only(&self) -> bool {
        self.link == Link::default() && self.local_root_span_id == [0; 8]
    }
}

/// Interns labels. `trace_id` and `span_id` with valid hex values are no labels but a link: see [`with_labels`].
pub fn intern_labels(labels: &[(&str, &str)]) -> LabelSetId {
    extend_labels(LabelSetId::EMPTY, labels)
}

/// The label set `parent` with `labels` added; a key given again replaces the parent's value. Valid `trace_id` and
/// `span_id` are left out, as in [`intern_labels`].
pub fn extend_labels(parent: LabelSetId, labels: &[(&str, &str)]) -> LabelSetId {
    if labels.iter().any(|(key, value)| trace_of(key, value).is_some() || span_of(key, value).is_some()) {
        let kept: Vec<_> = labels
            .iter()
            .filter(|(key, value)| trace_of(key, value).is_none() && span_of(key, value).is_none())
            .copied()
            .collect();
        return tables().extend(parent, &kept);
    }
    tables().extend(parent, labels)
}

/// The label set `parent` with the labels of `child` added; the child's values win. For labels interned beforehand.
pub fn merge_label_sets(parent: LabelSetId, child: LabelSetId) -> LabelSetId {
    tables().merge(parent, child)
}

/// The labels of a set, sorted by key.
pub fn labels_of(label_set: LabelSetId) -> Vec<(String, String)> {
    tables().labels_of(label_set)
}

/// `parent` with `labels` added; valid `trace_id` and `span_id` among them become the link. What `tag_wrapper` of every
/// language calls for a fresh map.
pub fn with_labels(parent: ContextRow, labels: &[(&str, &str)]) -> ContextRow {
    let mut row = ContextRow { label_set: extend_labels(parent.label_set, labels), ..parent };
    let trace_id = labels.iter().rev().find_map(|(key, value)| trace_of(key, value));
    let span_id = labels.iter().rev().find_map(|(key, value)| span_of(key, value));
    match (trace_id, span_id) {
        (Some(trace_id), span_id) => row.link = Link { trace_id, span_id: span_id.unwrap_or_default() },
        (None, Some(span_id)) => row.link.span_id = span_id,
        (None, None) => {}
    }
    row
}

/// `parent` with `child` on top: its labels win, its link replaces the parent's when it has one. What `tag_wrapper`
/// calls for labels prepared beforehand.
pub fn merge(parent: ContextRow, child: ContextRow) -> ContextRow {
    let label_set = merge_label_sets(parent.label_set, child.label_set);
    let (link, local_root_span_id) = if child.is_labels_only() {
        (parent.link, parent.local_root_span_id)
    } else {
        (child.link, child.local_root_span_id)
    };
    ContextRow { label_set, link, local_root_span_id }
}

/// Ids of label sets start behind the whole numbers that languages keep as shared objects (up to a few hundred), so that a
/// binding can tell two of its values with the same id apart.
const FIRST_LABELS_ID: u64 = 1024;

/// An id for `row`, to be carried along by a task or a thread: 0 for the empty row. Never reused. A row without a link
/// gets the same id each time and never expires; one with a link expires once `max_contexts` newer ones were opened.
pub fn open_context(row: ContextRow) -> u64 {
    if row.label_set == LabelSetId::EMPTY && row.is_labels_only() {
        return 0;
    }
    if row.is_labels_only() {
        return FIRST_LABELS_ID + (u64::from(row.label_set.0) << 1);
    }
    TABLE.open(row)
}

/// The row of `id`; `None` when it expired (never another request's row).
pub fn context_row(id: u64) -> Option<ContextRow> {
    if id & 1 == 0 {
        let label_set = if id == 0 { 0 } else { u32::try_from(id.checked_sub(FIRST_LABELS_ID)? >> 1).ok()? };
        return Some(ContextRow { label_set: LabelSetId(label_set), ..ContextRow::default() });
    }
    TABLE.row(id)
}

fn trace_of(key: &str, value: &str) -> Option<[u8; 16]> {
    if key == "trace_id" {
        hex(value)
    } else {
        None
    }
}

fn span_of(key: &str, value: &str) -> Option<[u8; 8]> {
    if key == "span_id" {
        hex(value)
    } else {
        None
    }
}

/// Bytes of `text` when it is exactly that many in hex and not all zero.
pub(crate) fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    (bytes != [0; N]).then_some(bytes)
}

const MAX_ROWS: usize = 262_144;
const ROW_WORDS: usize = 6;
/// Mark of a row being written: even, hence the id of no row.
const BUSY: u64 = 2;

static ROWS: [AtomicU64; MAX_ROWS * ROW_WORDS] = [const { AtomicU64::new(0) }; MAX_ROWS * ROW_WORDS];
static TABLE: ContextTable = ContextTable::new(&ROWS, 65_536);

/// Sets how many rows are in use; ids given before stay valid or read as expired.
pub(crate) fn set_max_contexts(max_contexts: u32) {
    TABLE.rows_in_use.store(max_contexts.clamp(1, MAX_ROWS as u32), Ordering::Relaxed);
}

/// Rows with a link opened since the process began.
pub(crate) fn opened_contexts() -> u64 {
    TABLE.next.load(Ordering::Relaxed)
}

struct ContextTable {
    /// Per row: id, label set, trace id (2), span id, local root span id.
    words: &'static [AtomicU64],
    rows_in_use: AtomicU32,
    next: AtomicU64,
}

impl ContextTable {
    const fn new(words: &'static [AtomicU64], rows_in_use: u32) -> Self {
        Self { words, rows_in_use: AtomicU32::new(rows_in_use), next: AtomicU64::new(0) }
    }

    fn words_of(&self, id: u64) -> Option<&[AtomicU64; ROW_WORDS]> {
        let rows = u64::from(self.rows_in_use.load(Ordering::Relaxed)).max(1);
        let start = ((id >> 1) % rows) as usize * ROW_WORDS;
        self.words.get(start..start + ROW_WORDS)?.try_into().ok()
    }

    fn open(&self, row: ContextRow) -> u64 {
        // A row that another thread is writing is left to it; the next id has another row. The bound is never met: it
        // would need as many threads stopped in the middle of this function.
        for _ in 0..1024 {
            let id = self.next.fetch_add(1, Ordering::Relaxed) << 1 | 1;
            let Some([mark, label_set, trace_high, trace_low, span, local_root]) = self.words_of(id) else { break };
            if mark.swap(BUSY, Ordering::Acquire) == BUSY {
                continue;
            }
            // Release: a reader that sees any word of the new row sees that the old one is gone.
            fence(Ordering::Release);
            let trace = u128::from_be_bytes(row.link.trace_id);
            label_set.store(u64::from(row.label_set.0), Ordering::Relaxed);
            trace_high.store((trace >> 64) as u64, Ordering::Relaxed);
            trace_low.store(trace as u64, Ordering::Relaxed);
            span.store(u64::from_be_bytes(row.link.span_id), Ordering::Relaxed);
            local_root.store(u64::from_be_bytes(row.local_root_span_id), Ordering::Relaxed);
            // Release: pairs with the Acquire in `row`.
            mark.store(id, Ordering::Release);
            return id;
        }
        0
    }

    fn row(&self, id: u64) -> Option<ContextRow> {
        let [mark, label_set, trace_high, trace_low, span, local_root] = self.words_of(id)?;
        if mark.load(Ordering::Acquire) != id {
            return None;
        }
        let label_set = label_set.load(Ordering::Relaxed);
        let trace =
            u128::from(trace_high.load(Ordering::Relaxed)) << 64 | u128::from(trace_low.load(Ordering::Relaxed));
        let span = span.load(Ordering::Relaxed);
        let local_root = local_root.load(Ordering::Relaxed);
        // Acquire: pairs with the Release fence in `open`; had a word been new, the mark would be too.
        fence(Ordering::Acquire);
        if mark.load(Ordering::Relaxed) != id {
            return None;
        }
        Some(ContextRow {
            label_set: LabelSetId(label_set as u32),
            link: Link { trace_id: trace.to_be_bytes(), span_id: span.to_be_bytes() },
            local_root_span_id: local_root.to_be_bytes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn small_table(rows: u32) -> ContextTable {
        let words = Vec::leak((0..rows as usize * ROW_WORDS).map(|_| AtomicU64::new(0)).collect());
        ContextTable::new(words, rows)
    }

    fn row_of(n: u64) -> ContextRow {
        ContextRow {
            label_set: LabelSetId(n as u32),
            link: Link { trace_id: (u128::from(n) << 64 | u128::from(n)).to_be_bytes(), span_id: n.to_be_bytes() },
            local_root_span_id: n.to_be_bytes(),
        }
    }

    #[test]
    fn trace_and_span_given_as_labels_become_the_link() {
        let row = with_labels(ContextRow::default(), &[("trace_id", TRACE), ("route", "/linked"), ("span_id", SPAN)]);
        assert_eq!(row.link.span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!(row.link.trace_id[..2], [0x4b, 0xf9]);
        assert_eq!(labels_of(row.label_set), [("route".to_owned(), "/linked".to_owned())]);
        assert_eq!(row.label_set, intern_labels(&[("route", "/linked"), ("trace_id", TRACE)]));
    }

    #[test]
    fn a_trace_id_that_is_no_hex_of_sixteen_bytes_stays_a_label() {
        for value in ["xyz", "00000000000000000000000000000000", "4bf92f3577b34da6a3ce929d0e0e473", "é"] {
            let row = with_labels(ContextRow::default(), &[("trace_id", value)]);
            assert_eq!(row.link, Link::default());
            assert_eq!(labels_of(row.label_set), [("trace_id".to_owned(), value.to_owned())]);
        }
    }

    #[test]
    fn an_inner_scope_keeps_the_link_it_does_not_replace() {
        let outer = with_labels(ContextRow::default(), &[("trace_id", TRACE), ("span_id", SPAN), ("a", "1")]);
        let inner = with_labels(outer, &[("b", "2")]);
        assert_eq!(inner.link, outer.link);
        let prebuilt = with_labels(ContextRow::default(), &[("b", "2")]);
        assert_eq!(merge(outer, prebuilt), inner);
        assert_eq!(merge(prebuilt, outer).link, outer.link);
    }

    #[test]
    fn labels_alone_have_one_permanent_id() {
        let row = with_labels(ContextRow::default(), &[("permanent", "yes")]);
        let id = open_context(row);
        assert_eq!(open_context(row), id);
        assert_eq!(context_row(id), Some(row));
        assert_eq!(open_context(ContextRow::default()), 0);
        assert_eq!(context_row(0), Some(ContextRow::default()));
    }

    #[test]
    fn an_evicted_id_reads_as_expired_and_never_as_another_request() {
        let table = small_table(4);
        let ids: Vec<_> = (1..=10).map(|n| table.open(row_of(n))).collect();
        for (n, id) in (1..=10).zip(&ids) {
            assert_eq!(table.row(*id), (n > 6).then(|| row_of(n)), "row {n}");
        }
        let mut sorted = ids.clone();
        sorted.dedup();
        assert_eq!(sorted, ids, "ids rise and are never reused");
    }

    #[test]
    fn a_row_that_another_thread_is_writing_is_passed_over() {
        let table = small_table(2);
        table.words[0].store(BUSY, Ordering::Relaxed);
        let first = table.open(row_of(1));
        let second = table.open(row_of(2));
        assert_eq!(first >> 1, 1, "row 0 is busy, its id is skipped");
        assert_eq!(second >> 1, 3);
        assert_eq!(table.row(second), Some(row_of(2)));
    }

    #[test]
    fn readers_never_see_a_mixture_of_two_rows_while_threads_write() {
        let table: &'static ContextTable = Box::leak(Box::new(small_table(8)));
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                std::thread::spawn(move || {
                    for n in 0..20_000 {
                        table.open(row_of(1 + writer * 1_000_000 + n));
                    }
                })
            })
            .collect();
        let mut whole = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let newest = table.next.load(Ordering::Relaxed).saturating_sub(1) << 1 | 1;
            if let Some(row) = table.row(newest) {
                assert_eq!(row, row_of(u64::from(row.label_set.0)));
                whole += 1;
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let last = table.row(table.next.load(Ordering::Relaxed).saturating_sub(1) << 1 | 1);
        assert!(whole > 0 || last.is_some());
    }
}
