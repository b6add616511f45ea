//! The rows behind odd context ids: a ring of fixed size in which each id has one place. Written by host threads, read by
//! the drain thread; neither waits. Not here: what a row means (`context`).
//!
//! # Laws
//! 1. An id is given once, in rising order. A row is claimed before it is written and carries its id last: a reader gets
//!    the row of the id it asked for, or nothing. A row being written by one thread is left alone by all others.
//! 2. The hand that looks for a row to write moves with the ids. It passes over rows that are held (their scope is open),
//!    and once over rows that a sample was drained for, or whose last holder left, when they were old already.
//! 3. Hence a context stays while a scope holds it, or while it is sampled at least once in any three quarters of a round.
//! 4. The hand passes over a bounded number of rows; where all of them are held the new context is refused.
//! 5. The drain thread is woken four times a round, so that what a sample refers to is there when it is drained.

use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::{ContextRow, LabelSetId, Link};
use crate::sys::Inbox;

pub(super) const MAX_ROWS: usize = 262_144;
pub(super) const ROW_WORDS: usize = 6;

/// The first word of a row: its id, above it the number of holders, above that whether it was used.
const ID: u64 = HOLDER - 1;
const HOLDER: u64 = 1 << 48;
const HOLDERS: u64 = USED - HOLDER;
const USED: u64 = 1 << 63;
/// First word of a row being written: even, hence the id of no row.
const BUSY: u64 = 2;

/// Rows that the hand passes over in one call, at most; some microseconds.
const MAX_PASSED: u64 = 256;
/// Of these the ones that are only marked as used: beyond, a used row is taken.
const MAX_USED_PASSED: u64 = 8;

/// See the head of the module.
pub(super) struct ContextTable {
    /// Per row: first word, label set, trace id (2), span id, local root span id.
    words: &'static [AtomicU64],
    rows_in_use: AtomicU32,
    /// Position of the hand: half the next id.
    hand: AtomicU64,
    passed: AtomicU64,
    refused: AtomicU64,
    /// Where the drain thread waits.
    bell: ArcSwapOption<&'static Inbox>,
}

impl ContextTable {
    pub const fn new(words: &'static [AtomicU64], rows_in_use: u32) -> Self {
        Self {
            words,
            rows_in_use: AtomicU32::new(rows_in_use),
            hand: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bell: ArcSwapOption::const_empty(),
        }
    }

    /// Sets how many rows are in use; ids given before stay valid or read as expired.
    pub fn set_rows(&self, rows: u32) {
        self.rows_in_use.store(rows.clamp(1, MAX_ROWS as u32), Ordering::Relaxed);
    }

    pub fn set_bell(&self, inbox: &'static Inbox) {
        self.bell.store(Some(std::sync::Arc::new(inbox)));
    }

    /// Rows ever written, and contexts that found none.
    pub fn opened_and_refused(&self) -> (u64, u64) {
        let hand = self.hand.load(Ordering::Relaxed);
        (hand.saturating_sub(self.passed.load(Ordering::Relaxed)), self.refused.load(Ordering::Relaxed))
    }

    fn rows(&self) -> u64 {
        u64::from(self.rows_in_use.load(Ordering::Relaxed)).max(1)
    }

    fn words_of(&self, id: u64) -> Option<&[AtomicU64; ROW_WORDS]> {
        let start = ((id >> 1) % self.rows()) as usize * ROW_WORDS;
        self.words.get(start..start + ROW_WORDS)?.try_into().ok()
    }

    /// Writes a row; its id. `None` when the hand met only rows that are held.
    pub fn open(&self, row: ContextRow) -> Option<u64> {
        let rows = self.rows();
        let mut used_passed = 0;
        for passed in 0..MAX_PASSED {
            let position = self.hand.fetch_add(1, Ordering::Relaxed);
            let id = position << 1 | 1;
            let place = position % rows;
            if place.is_multiple_of((rows / 4).max(1)) {
                self.ring();
            }
            let Some([first, label_set, trace_high, trace_low, span, local_root]) = self.words_of(id) else { break };
            let found = first.load(Ordering::Relaxed);
            // A holder that can no longer find its row, since the number of rows was changed, does not count.
            let is_held = found & HOLDERS != 0 && ((found & ID) >> 1) % rows == place;
            if found == BUSY || is_held {
                continue;
            }
            if found & USED != 0 && used_passed < MAX_USED_PASSED {
                used_passed += 1;
                // Whoever changed it meanwhile uses it now.
                let _ = first.compare_exchange(found, found & !USED, Ordering::Relaxed, Ordering::Relaxed);
                continue;
            }
            if first.compare_exchange(found, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
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
            first.store(id, Ordering::Release);
            if passed > 0 {
                self.passed.fetch_add(passed, Ordering::Relaxed);
            }
            return Some(id);
        }
        self.passed.fetch_add(MAX_PASSED, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    #[cold]
    fn ring(&self) {
        if let Some(inbox) = &*self.bell.load() {
            inbox.wake();
        }
    }

    /// Whether the hand is nearer to the row of `id` than three quarters of a round.
    fn is_old(&self, id: u64) -> bool {
        self.hand.load(Ordering::Relaxed).saturating_sub(id >> 1) >= self.rows() / 4
    }

    /// The row of `id`; `None` when it expired.
    pub fn row(&self, id: u64) -> Option<ContextRow> {
        let [first, label_set, trace_high, trace_low, span, local_root] = self.words_of(id)?;
        if first.load(Ordering::Acquire) & ID != id {
            return None;
        }
        let label_set = label_set.load(Ordering::Relaxed);
        let trace =
            u128::from(trace_high.load(Ordering::Relaxed)) << 64 | u128::from(trace_low.load(Ordering::Relaxed));
        let span = span.load(Ordering::Relaxed);
        let local_root = local_root.load(Ordering::Relaxed);
        // Acquire: pairs with the Release fence in `open`; had a word been new, the first would be too.
        fence(Ordering::Acquire);
        if first.load(Ordering::Relaxed) & ID != id {
            return None;
        }
        Some(ContextRow {
            label_set: LabelSetId(label_set as u32),
            link: Link { trace_id: trace.to_be_bytes(), span_id: span.to_be_bytes() },
            local_root_span_id: local_root.to_be_bytes(),
        })
    }

    /// The row of a sample, which shows that it is in use.
    pub fn row_of_sample(&self, id: u64) -> Option<ContextRow> {
        if self.is_old(id) {
            self.change(id, |word| (word & USED == 0).then_some(word | USED));
        }
        self.row(id)
    }

    /// Adds a holder; false when the row is gone or has too many.
    pub fn hold(&self, id: u64) -> bool {
        self.change(id, |word| (word & HOLDERS != HOLDERS).then_some(word + HOLDER))
    }

    /// Takes a holder away. Samples of an old row may still wait in the ring: it outlives one more meeting with the hand.
    pub fn release(&self, id: u64) {
        let mark = if self.is_old(id) { USED } else { 0 };
        self.change(id, |word| (word & HOLDERS != 0).then(|| (word - HOLDER) | mark));
    }

    /// Changes the first word of the row of `id` while it is that; false when it is not, or `change` does not want to.
    fn change(&self, id: u64, change: impl Fn(u64) -> Option<u64>) -> bool {
        let Some([first, ..]) = self.words_of(id) else { return false };
        let wanted = |word| if word & ID == id { change(word) } else { None };
        // Release keeps what the row says in order for readers, who acquire.
        first.fetch_update(Ordering::AcqRel, Ordering::Relaxed, wanted).is_ok()
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
        }
    }

    #[test]
    fn an_evicted_id_reads_as_expired_and_never_as_another_request() {
        let table = small_table(4);
        let ids: Vec<_> = (1..=10).map(|n| table.open(row_of(n)).unwrap()).collect();
        for (n, id) in (1..=10).zip(&ids) {
            assert_eq!(table.row(*id), (n > 6).then(|| row_of(n)), "row {n}");
        }
        let mut sorted = ids.clone();
        sorted.dedup();
        assert_eq!(sorted, ids, "ids rise and are never reused");
        assert_eq!(table.opened_and_refused(), (10, 0));
    }

    #[test]
    fn a_context_sampled_every_so_often_outlives_a_million_younger_ones() {
        let table = small_table(4096);
        let sampled = table.open(row_of(1)).unwrap();
        let idle = table.open(row_of(2)).unwrap();
        for n in 0..1_000_000 {
            table.open(row_of(n)).unwrap();
            if n % 3000 == 0 {
                assert_eq!(table.row_of_sample(sampled), Some(row_of(1)), "after {n} younger ones");
            }
        }
        assert_eq!(table.row(idle), None);
    }

    #[test]
    fn a_held_context_outlives_a_million_younger_ones_without_a_sample_and_goes_when_its_last_holder_does() {
        let table = small_table(4096);
        let held = table.open(row_of(1)).unwrap();
        assert!(table.hold(held) && table.hold(held));
        let younger = |count| (0..count).for_each(|n| assert!(table.open(row_of(n)).is_some()));
        younger(500_000);
        table.release(held);
        younger(500_000);
        assert_eq!(table.row(held), Some(row_of(1)));
        table.release(held);
        younger(4000);
        assert_eq!(table.row(held), Some(row_of(1)), "a sample taken just before may still wait in the ring");
        younger(8192);
        assert_eq!(table.row(held), None);
        assert!(!table.hold(held));
        table.release(held);
        assert_eq!(table.opened_and_refused(), (1_012_193, 0));
    }

    #[test]
    fn a_short_scope_leaves_no_mark_that_would_make_others_pass_over_it() {
        let table = small_table(4096);
        for n in 0..100_000 {
            let id = table.open(row_of(n)).unwrap();
            assert!(table.hold(id));
            table.row_of_sample(id);
            table.release(id);
            assert_eq!(id >> 1, n, "no row was passed over");
        }
    }

    #[test]
    fn with_every_row_held_a_new_context_is_refused_and_none_is_evicted() {
        let table = small_table(512);
        let ids: Vec<_> = (0..512).map(|n| table.open(row_of(n)).unwrap()).collect();
        assert!(ids.iter().all(|id| table.hold(*id)));
        assert_eq!(table.open(row_of(1000)), None);
        assert_eq!(table.opened_and_refused(), (512, 1));
        assert!(ids.iter().enumerate().all(|(n, id)| table.row(*id) == Some(row_of(n as u64))));
        ids.iter().for_each(|id| table.release(*id));
        assert!(table.open(row_of(1001)).is_some());
    }

    #[test]
    fn with_every_row_used_a_bounded_number_is_passed_over() {
        let table = small_table(512);
        let ids: Vec<_> = (0..512).map(|n| table.open(row_of(n)).unwrap()).collect();
        for id in &ids {
            table.change(*id, |word| Some(word | USED));
        }
        let id = table.open(row_of(1000)).unwrap();
        assert_eq!(id >> 1, 512 + MAX_USED_PASSED);
    }

    #[test]
    fn holders_from_before_a_change_of_size_do_not_block_their_rows_for_ever() {
        let table = small_table(512);
        let mut ids = Vec::new();
        for n in 0..1024 {
            ids.push(table.open(row_of(n)).unwrap());
        }
        // The second round of ids: with 300 rows each of them belongs elsewhere.
        assert!(ids[512..].iter().all(|id| table.hold(*id)));
        table.set_rows(300);
        assert_eq!((0..900).filter(|n| table.open(row_of(*n)).is_some()).count(), 900);
    }

    #[test]
    fn the_drain_thread_is_woken_four_times_a_round() {
        let words = Vec::leak((0..8192).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let inbox: &'static Inbox = Box::leak(Box::new(Inbox::new(words).unwrap()));
        let table = small_table(512);
        table.set_bell(inbox);
        let mut woken = 0;
        for n in 0..1024 {
            table.open(row_of(n)).unwrap();
            woken += u32::from(inbox.wait(Some(1)) == crate::sys::WakeReason::Requested);
        }
        assert_eq!(woken, 8);
    }

    #[test]
    fn a_row_that_another_thread_is_writing_is_passed_over() {
        let table = small_table(2);
        table.words[0].store(BUSY, Ordering::Relaxed);
        let first = table.open(row_of(1)).unwrap();
        let second = table.open(row_of(2)).unwrap();
        assert_eq!(first >> 1, 1, "row 0 is busy, its id is skipped");
        assert_eq!(second >> 1, 3);
        assert_eq!(table.row(second), Some(row_of(2)));
    }

    #[test]
    fn readers_never_see_a_mixture_of_two_rows_while_threads_write_hold_and_sample() {
        let table: &'static ContextTable = Box::leak(Box::new(small_table(8)));
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                std::thread::spawn(move || {
                    for n in 0..20_000 {
                        let own = row_of(1 + writer * 1_000_000 + n);
                        let Some(id) = table.open(own) else { continue };
                        if table.hold(id) {
                            assert_eq!(table.row(id), Some(own), "a held row stays");
                            table.release(id);
                        }
                    }
                })
            })
            .collect();
        let mut whole = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let newest = table.hand.load(Ordering::Relaxed).saturating_sub(1) << 1 | 1;
            if let Some(row) = table.row_of_sample(newest) {
                assert_eq!(row, row_of(u64::from(row.label_set.0)));
                whole += 1;
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let last = table.row(table.hand.load(Ordering::Relaxed).saturating_sub(1) << 1 | 1);
        assert!(whole > 0 || last.is_some());
        assert!(table.words.iter().step_by(ROW_WORDS).all(|first| first.load(Ordering::Relaxed) & HOLDERS == 0));
    }
}
