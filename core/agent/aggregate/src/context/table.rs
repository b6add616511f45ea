//! The rows of odd context ids: a table of fixed size with CLOCK eviction, in which each id maps to one row. Written by
//! host threads, read by the drain thread; neither waits. Not here: the content of a row (`context`).
//!
//! # Rules
//! 1. An id is allocated once, in ascending order. A writer claims a row first and stores its id last: a reader gets the row
//!    of the requested id, or nothing. Other threads skip a row while it is written.
//! 2. Rows are evicted by the CLOCK algorithm; the clock hand is half the next id. Pinned rows (their scope is open) are
//!    skipped. The reference bit of an old row is set when a sample of it is drained or its last pin is removed; such a row
//!    is skipped once.
//! 3. Hence a context is kept while a scope pins it, or while it is sampled at least once per three quarters of a revolution.
//! 4. One allocation skips a bounded number of rows; if all of them are pinned, the new context is refused. Evicting a pinned
//!    row would break an open scope, and a longer scan would make the host wait.
//! 5. The drain thread is woken four times per revolution, so that samples are drained before their rows are evicted.
//!
//! # Why not by age
//! At 1,000 spans a second, 65,536 rows last 65 s, and 6.5 s with ten spans per request. Tasks, websockets and long queries
//! lost their labels while their scope was open. A million rows take 48 MB and only postpone that. Copies of an id cannot be
//! counted, since a runtime reports the end of a scope but not its copies.

use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::{ContextRow, LabelSetId, Link};
use spanprof_signal::Inbox;

pub(super) const MAX_ROWS: usize = 65_536;
pub(super) const ROW_WORDS: usize = 6;

/// Fields of the state word, the first word of a row: id, pin count, reference bit.
const ID: u64 = ONE_PIN - 1;
const ONE_PIN: u64 = 1 << 48;
const PINS: u64 = REFERENCED - ONE_PIN;
const REFERENCED: u64 = 1 << 63;
/// State word of a row that is being written: even, hence not the id of a row.
const WRITING: u64 = 2;

/// Maximum number of rows that one allocation skips, which takes some microseconds.
const MAX_SKIPPED: u64 = 256;
/// Maximum number of referenced rows among these; beyond it, a referenced row is evicted.
const MAX_REFERENCED_SKIPPED: u64 = 8;

/// Contexts by id, in a fixed number of rows.
pub(super) struct ContextTable {
    /// Per row: state word, label set and capture, trace id (2), span id, local root span id.
    words: &'static [AtomicU64],
    rows_in_use: AtomicU32,
    /// Position of the clock hand: half the next id.
    hand: AtomicU64,
    skipped: AtomicU64,
    refused: AtomicU64,
    /// Wakes the drain thread.
    drain_inbox: ArcSwapOption<&'static Inbox>,
}

impl ContextTable {
    pub const fn new(words: &'static [AtomicU64], rows_in_use: u32) -> Self {
        Self {
            words,
            rows_in_use: AtomicU32::new(rows_in_use),
            hand: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            drain_inbox: ArcSwapOption::const_empty(),
        }
    }

    /// Sets the number of rows in use; existing ids stay valid or read as expired.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_rows(&self, rows: u32) {
        self.rows_in_use.store(rows.clamp(1, MAX_ROWS as u32), Ordering::Relaxed);
    }

    pub fn set_drain_inbox(&self, inbox: &'static Inbox) {
        self.drain_inbox.store(Some(std::sync::Arc::new(inbox)));
    }

    /// Rows written and contexts refused since the process began.
    pub fn opened_and_refused(&self) -> (u64, u64) {
        let hand = self.hand.load(Ordering::Relaxed);
        (hand.saturating_sub(self.skipped.load(Ordering::Relaxed)), self.refused.load(Ordering::Relaxed))
    }

    fn rows(&self) -> u64 {
        u64::from(self.rows_in_use.load(Ordering::Relaxed)).max(1)
    }

    fn words_of(&self, id: u64) -> Option<&[AtomicU64; ROW_WORDS]> {
        let start = ((id >> 1) % self.rows()) as usize * ROW_WORDS;
        self.words.get(start..start + ROW_WORDS)?.try_into().ok()
    }

    /// Writes a row and returns its id. `None` when only pinned rows were found.
    pub fn open(&self, row: ContextRow) -> Option<u64> {
        let rows = self.rows();
        let mut referenced_skipped = 0;
        for skipped in 0..MAX_SKIPPED {
            let position = self.hand.fetch_add(1, Ordering::Relaxed);
            let id = position << 1 | 1;
            let row_index = position % rows;
            if row_index.is_multiple_of((rows / 4).max(1)) {
                self.wake_drain();
            }
            let Some([state, label_set, trace_high, trace_low, span, local_root]) = self.words_of(id) else { break };
            let found = state.load(Ordering::Relaxed);
            // Pins do not count where the id maps to another row since the number of rows changed.
            let is_pinned = found & PINS != 0 && ((found & ID) >> 1) % rows == row_index;
            if found == WRITING || is_pinned {
                continue;
            }
            if found & REFERENCED != 0 && referenced_skipped < MAX_REFERENCED_SKIPPED {
                referenced_skipped += 1;
                // Fails if another thread changed the state, which means that the row is in use.
                let _ = state.compare_exchange(found, found & !REFERENCED, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            if state.compare_exchange(found, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            // Release: a reader that sees a word of the new row also sees the changed state.
            fence(Ordering::Release);
            let trace = u128::from_be_bytes(row.link.trace_id);
            label_set.store(u64::from(row.label_set.0) | u64::from(row.capture) << 32, Ordering::Relaxed);
            trace_high.store((trace >> 64) as u64, Ordering::Relaxed);
            trace_low.store(trace as u64, Ordering::Relaxed);
            span.store(u64::from_be_bytes(row.link.span_id), Ordering::Relaxed);
            local_root.store(u64::from_be_bytes(row.local_root_span_id), Ordering::Relaxed);
            // Release: pairs with the Acquire in `row`.
            state.store(id, Ordering::Release);
            if skipped > 0 {
                self.skipped.fetch_add(skipped, Ordering::Relaxed);
            }
            return Some(id);
        }
        self.skipped.fetch_add(MAX_SKIPPED, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    #[cold]
    fn wake_drain(&self) {
        if let Some(inbox) = &*self.drain_inbox.load() {
            inbox.wake();
        }
    }

    /// Whether at least a quarter of a revolution has passed since `id` was allocated.
    fn is_old(&self, id: u64) -> bool {
        self.hand.load(Ordering::Relaxed).saturating_sub(id >> 1) >= self.rows() / 4
    }

    /// The row of `id`; `None` when it expired.
    pub fn row(&self, id: u64) -> Option<ContextRow> {
        let [state, label_set, trace_high, trace_low, span, local_root] = self.words_of(id)?;
        if state.load(Ordering::Acquire) & ID != id {
            return None;
        }
        let label_set = label_set.load(Ordering::Relaxed);
        let trace =
            u128::from(trace_high.load(Ordering::Relaxed)) << 64 | u128::from(trace_low.load(Ordering::Relaxed));
        let span = span.load(Ordering::Relaxed);
        let local_root = local_root.load(Ordering::Relaxed);
        // Acquire: pairs with the Release fence in `open`; if a word was new, the state has changed too.
        fence(Ordering::Acquire);
        if state.load(Ordering::Relaxed) & ID != id {
            return None;
        }
        Some(ContextRow {
            label_set: LabelSetId(label_set as u32),
            link: Link { trace_id: trace.to_be_bytes(), span_id: span.to_be_bytes() },
            local_root_span_id: local_root.to_be_bytes(),
            capture: (label_set >> 32) as u32,
        })
    }

    /// The row of a sample. Sets the reference bit of an old row.
    pub fn sampled_row(&self, id: u64) -> Option<ContextRow> {
        if self.is_old(id) {
            self.update_state(id, |state| (state & REFERENCED == 0).then_some(state | REFERENCED));
        }
        self.row(id)
    }

    /// Adds a pin; false when the row was evicted or its pin count is at the maximum.
    pub fn pin(&self, id: u64) -> bool {
        self.update_state(id, |state| (state & PINS != PINS).then_some(state + ONE_PIN))
    }

    /// Removes a pin. Sets the reference bit of an old row, because its samples may still be in the ring.
    pub fn unpin(&self, id: u64) {
        let mark = if self.is_old(id) { REFERENCED } else { 0 };
        self.update_state(id, |state| (state & PINS != 0).then(|| (state - ONE_PIN) | mark));
    }

    /// Updates the state word while the row belongs to `id`; false when it does not, or `update` returns `None`.
    fn update_state(&self, id: u64, update: impl Fn(u64) -> Option<u64>) -> bool {
        let Some([state, ..]) = self.words_of(id) else { return false };
        let update_if_same = |word| if word & ID == id { update(word) } else { None };
        // Release: readers that acquire this state see the words of the row.
        state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, update_if_same).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_table(rows: u32) -> ContextTable {
        let words = Vec::leak((0..rows as usize * ROW_WORDS).map(|_| AtomicU64::new(0)).collect());
        ContextTable::new(words, rows)
    }

    fn row_of(n: u64) -> ContextRow {
        ContextRow {
            label_set: LabelSetId(n as u32),
            link: Link { trace_id: (u128::from(n) << 64 | u128::from(n)).to_be_bytes(), span_id: n.to_be_bytes() },
            local_root_span_id: n.to_be_bytes(),
            capture: n as u32,
        }
    }

    #[test]
    fn an_evicted_id_reads_as_expired_and_never_as_another_row() {
        let table = small_table(4);
        let ids: Vec<_> = (1..=10).map(|n| table.open(row_of(n)).unwrap()).collect();
        for (n, id) in (1..=10).zip(&ids) {
            assert_eq!(table.row(*id), (n > 6).then(|| row_of(n)), "row {n}");
        }
        let mut sorted = ids.clone();
        sorted.dedup();
        assert_eq!(sorted, ids, "ids ascend and are never reused");
        assert_eq!(table.opened_and_refused(), (10, 0));
    }

    #[test]
    fn a_row_sampled_once_in_three_quarters_of_a_revolution_outlives_a_million_newer_ones() {
        let table = small_table(4096);
        let sampled = table.open(row_of(1)).unwrap();
        let idle = table.open(row_of(2)).unwrap();
        for n in 0..1_000_000 {
            table.open(row_of(n)).unwrap();
            if n % 3000 == 0 {
                assert_eq!(table.sampled_row(sampled), Some(row_of(1)), "after {n} newer ones");
            }
        }
        assert_eq!(table.row(idle), None);
    }

    #[test]
    fn a_pinned_row_outlives_a_million_newer_ones_and_is_evicted_after_its_last_pin() {
        let table = small_table(4096);
        let pinned = table.open(row_of(1)).unwrap();
        assert!(table.pin(pinned) && table.pin(pinned));
        let open_newer = |count| (0..count).for_each(|n| assert!(table.open(row_of(n)).is_some()));
        open_newer(500_000);
        table.unpin(pinned);
        open_newer(500_000);
        assert_eq!(table.row(pinned), Some(row_of(1)));
        table.unpin(pinned);
        open_newer(4000);
        assert_eq!(table.row(pinned), Some(row_of(1)), "a sample taken just before may still be in the ring");
        open_newer(8192);
        assert_eq!(table.row(pinned), None);
        assert!(!table.pin(pinned));
        table.unpin(pinned);
        assert_eq!(table.opened_and_refused(), (1_012_193, 0));
    }

    #[test]
    fn a_short_scope_does_not_set_the_reference_bit_of_its_row() {
        let table = small_table(4096);
        for n in 0..100_000 {
            let id = table.open(row_of(n)).unwrap();
            assert!(table.pin(id));
            table.sampled_row(id);
            table.unpin(id);
            assert_eq!(id >> 1, n, "no row was skipped");
        }
    }

    #[test]
    fn with_every_row_pinned_a_new_context_is_refused_and_none_is_evicted() {
        let table = small_table(512);
        let ids: Vec<_> = (0..512).map(|n| table.open(row_of(n)).unwrap()).collect();
        assert!(ids.iter().all(|id| table.pin(*id)));
        assert_eq!(table.open(row_of(1000)), None);
        assert_eq!(table.opened_and_refused(), (512, 1));
        assert!(ids.iter().enumerate().all(|(n, id)| table.row(*id) == Some(row_of(n as u64))));
        ids.iter().for_each(|id| table.unpin(*id));
        assert!(table.open(row_of(1001)).is_some());
    }

    #[test]
    fn with_every_row_referenced_a_bounded_number_is_skipped() {
        let table = small_table(512);
        let ids: Vec<_> = (0..512).map(|n| table.open(row_of(n)).unwrap()).collect();
        for id in &ids {
            table.update_state(*id, |state| Some(state | REFERENCED));
        }
        let id = table.open(row_of(1000)).unwrap();
        assert_eq!(id >> 1, 512 + MAX_REFERENCED_SKIPPED);
    }

    #[test]
    fn pins_from_before_a_change_of_size_do_not_block_their_rows_forever() {
        let table = small_table(512);
        let mut ids = Vec::new();
        for n in 0..1024 {
            ids.push(table.open(row_of(n)).unwrap());
        }
        // Ids of the second revolution: with 300 rows each of them maps to another row.
        assert!(ids[512..].iter().all(|id| table.pin(*id)));
        table.set_rows(300);
        assert_eq!((0..900).filter(|n| table.open(row_of(*n)).is_some()).count(), 900);
    }

    #[test]
    fn the_drain_thread_is_woken_four_times_per_revolution() {
        let words = Vec::leak((0..8192).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
        let table = small_table(512);
        table.set_drain_inbox(inbox);
        let mut woken = 0;
        for n in 0..1024 {
            table.open(row_of(n)).unwrap();
            woken += u32::from(inbox.wait(Some(1)) == spanprof_signal::WakeReason::Requested);
        }
        assert_eq!(woken, 8);
    }

    #[test]
    fn a_row_that_another_thread_is_writing_is_skipped() {
        let table = small_table(2);
        table.words[0].store(WRITING, Ordering::Relaxed);
        let first = table.open(row_of(1)).unwrap();
        let second = table.open(row_of(2)).unwrap();
        assert_eq!(first >> 1, 1, "row 0 is being written, its id is skipped");
        assert_eq!(second >> 1, 3);
        assert_eq!(table.row(second), Some(row_of(2)));
    }

    #[test]
    fn readers_never_see_a_mixture_of_two_rows_while_threads_write_pin_and_sample() {
        let table: &'static ContextTable = Box::leak(Box::new(small_table(8)));
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                std::thread::spawn(move || {
                    for n in 0..20_000 {
                        let own = row_of(1 + writer * 1_000_000 + n);
                        let Some(id) = table.open(own) else { continue };
                        if table.pin(id) {
                            assert_eq!(table.row(id), Some(own), "a pinned row is kept");
                            table.unpin(id);
                        }
                    }
                })
            })
            .collect();
        let mut complete_rows = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let newest = table.hand.load(Ordering::Relaxed).saturating_sub(1) << 1 | 1;
            if let Some(row) = table.sampled_row(newest) {
                assert_eq!(row, row_of(u64::from(row.label_set.0)));
                complete_rows += 1;
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let last = table.row(table.hand.load(Ordering::Relaxed).saturating_sub(1) << 1 | 1);
        assert!(complete_rows > 0 || last.is_some());
        assert!(table.words.iter().step_by(ROW_WORDS).all(|state| state.load(Ordering::Relaxed) & PINS == 0));
    }
}
