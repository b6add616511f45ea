//! The tables of keys, labels (a key with a value) and label sets, built from the parts of `index`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::index::{Arena, Index};
use crate::hash::{hash_bytes, mixed};

use super::{LabelLosses, LabelSetId, WriterLock, MAX_KEY_BYTES, MAX_LABELS_PER_SET, MAX_SETS, MAX_VALUE_BYTES, OTHER};

/// Bits of the resulting id in a word of the merge cache.
const MERGE_BITS: u32 = 21;

/// The keys, labels and label sets of the process. The rules of `labels` apply to each table.
pub struct LabelTables {
    writer: WriterLock,
    arena: Arena,
    keys: Index,
    labels: Index,
    sets: Index,
    values_of_key: &'static [AtomicU32],
    /// Cache of `merge`; one word per entry: parent, child, result.
    merged: &'static [AtomicU64],
    max_sets: AtomicU32,
    max_value_bytes: AtomicU32,
    values_truncated: AtomicU64,
    values_replaced: AtomicU64,
    labels_dropped: AtomicU64,
}

/// Labels of a set under construction, by ascending key id.
struct SetDraft {
    labels: [u32; MAX_LABELS_PER_SET],
    keys: [u32; MAX_LABELS_PER_SET],
    len: usize,
}

impl SetDraft {
    fn new() -> Self {
        Self { labels: [0; MAX_LABELS_PER_SET], keys: [0; MAX_LABELS_PER_SET], len: 0 }
    }

    /// Adds a label or replaces the one of the same key; false when the set is full.
    fn put(&mut self, key: u32, label: u32) -> bool {
        let at = self.keys[..self.len].partition_point(|known| *known < key);
        if at < self.len && self.keys[at] == key {
            self.labels[at] = label;
            return true;
        }
        if self.len == MAX_LABELS_PER_SET {
            return false;
        }
        self.keys.copy_within(at..self.len, at + 1);
        self.labels.copy_within(at..self.len, at + 1);
        self.keys[at] = key;
        self.labels[at] = label;
        self.len += 1;
        true
    }

    fn labels(&self) -> &[u32] {
        &self.labels[..self.len]
    }

    fn is_full(&self) -> bool {
        self.len == MAX_LABELS_PER_SET
    }
}

impl LabelTables {
    pub(crate) const fn new(
        arena: Arena,
        keys: Index,
        labels: Index,
        sets: Index,
        values_of_key: &'static [AtomicU32],
        merged: &'static [AtomicU64],
    ) -> Self {
        Self {
            writer: WriterLock::new(),
            arena,
            keys,
            labels,
            sets,
            values_of_key,
            merged,
            max_sets: AtomicU32::new(MAX_SETS),
            max_value_bytes: AtomicU32::new(MAX_VALUE_BYTES),
            values_truncated: AtomicU64::new(0),
            values_replaced: AtomicU64::new(0),
            labels_dropped: AtomicU64::new(0),
        }
    }

    /// Sets the caps for later insertions.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_limits(&self, max_sets: u32, max_value_bytes: u32) {
        self.max_sets.store(max_sets, Ordering::Relaxed);
        self.max_value_bytes.store(max_value_bytes, Ordering::Relaxed);
    }

    /// Releases the writer lock in a forked child, which does not have the holding thread.
    pub fn after_fork_in_child(&self) {
        self.writer.reset_after_fork();
    }

    pub fn losses(&self) -> LabelLosses {
        LabelLosses {
            values_truncated: self.values_truncated.load(Ordering::Relaxed),
            values_replaced: self.values_replaced.load(Ordering::Relaxed),
            labels_dropped: self.labels_dropped.load(Ordering::Relaxed),
        }
    }

    /// Number of label sets, without the empty one.
    pub fn set_count(&self) -> usize {
        self.sets.len()
    }

    /// Memory of the entries.
    pub fn used_bytes(&self) -> u64 {
        self.arena.used_bytes()
    }

    /// `parent` with `labels` added; later and inner ones win.
    pub fn extend(&self, parent: LabelSetId, labels: &[(&str, &str)]) -> LabelSetId {
        let mut draft = self.draft_of(parent);
        for (key, value) in labels {
            // A full set interns no new key, so that a map of thousands does not exhaust the keys of the process.
            let key = if draft.is_full() { self.find_key(key) } else { self.intern_key(key) };
            let added = key.is_some_and(|key| {
                let label = self.intern_label(key, value);
                label.is_some_and(|label| draft.put(key, label))
            });
            if !added {
                self.labels_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.intern_set(&draft)
    }

    /// `parent` with the labels of `child` added.
    pub fn merge(&self, parent: LabelSetId, child: LabelSetId) -> LabelSetId {
        if parent == LabelSetId::EMPTY || parent == child {
            return child;
        }
        if child == LabelSetId::EMPTY {
            return parent;
        }
        let pair = (u64::from(parent.0) << MERGE_BITS | u64::from(child.0)) << MERGE_BITS;
        let cached_merge = self.merged.get(mixed(0, pair) as usize % self.merged.len().max(1));
        if let Some(cached_merge) = cached_merge {
            // An entry is one word, and its ids are already published by their tables.
            let word = cached_merge.load(Ordering::Acquire);
            if word >> MERGE_BITS << MERGE_BITS == pair && word != 0 {
                return LabelSetId((word & ((1 << MERGE_BITS) - 1)) as u32);
            }
        }
        let mut draft = self.draft_of(parent);
        let child_draft = self.draft_of(child);
        for (key, label) in child_draft.keys[..child_draft.len].iter().zip(child_draft.labels()) {
            if !draft.put(*key, *label) {
                self.labels_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        let result = self.intern_set(&draft);
        if let Some(cached_merge) = cached_merge {
            cached_merge.store(pair | u64::from(result.0), Ordering::Release);
        }
        result
    }

    /// The labels of a set, sorted by key.
    pub fn labels_of(&self, set: LabelSetId) -> Vec<(String, String)> {
        let draft = self.draft_of(set);
        let mut pairs: Vec<_> = draft
            .labels()
            .iter()
            .map(|label| {
                let offset = self.labels.offset(*label);
                let head = self.arena.word(offset);
                (self.key_text((head >> 32) as u32), self.arena.text(offset + 1, (head & 0xFFFF_FFFF) as usize))
            })
            .collect();
        pairs.sort();
        pairs
    }

    fn key_text(&self, key: u32) -> String {
        let offset = self.keys.offset(key);
        self.arena.text(offset + 1, self.arena.word(offset) as usize)
    }

    fn draft_of(&self, set: LabelSetId) -> SetDraft {
        let mut draft = SetDraft::new();
        if set == LabelSetId::EMPTY {
            return draft;
        }
        let offset = self.sets.offset(set.0 - 1);
        let len = if offset == 0 { 0 } else { (self.arena.word(offset) as usize).min(MAX_LABELS_PER_SET) };
        for index in 0..len {
            let label = self.arena.word(offset + 1 + index as u32) as u32;
            draft.labels[index] = label;
            draft.keys[index] = (self.arena.word(self.labels.offset(label)) >> 32) as u32;
        }
        draft.len = len;
        draft
    }

    fn intern_key(&self, text: &str) -> Option<u32> {
        let bytes = truncated(text, MAX_KEY_BYTES).as_bytes();
        if bytes.is_empty() {
            return None;
        }
        if let Some(id) = self.find_key(text) {
            return Some(id);
        }
        let _writer = self.writer.lock();
        let insert = || self.keys.insert(hash_bytes(1, bytes), || self.write_entry(bytes.len() as u64, bytes));
        self.find_key(text).or_else(insert)
    }

    fn find_key(&self, text: &str) -> Option<u32> {
        let bytes = truncated(text, MAX_KEY_BYTES).as_bytes();
        self.keys.find(hash_bytes(1, bytes), |offset| {
            self.arena.word(offset) == bytes.len() as u64 && self.arena.bytes_equal(offset + 1, bytes)
        })
    }

    /// The label of a key and value; a value beyond a cap becomes `other`.
    fn intern_label(&self, key: u32, value: &str) -> Option<u32> {
        let cut = truncated(value, self.max_value_bytes.load(Ordering::Relaxed) as usize);
        if cut.len() < value.len() {
            self.values_truncated.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(label) = self.find_label(key, cut) {
            return Some(label);
        }
        let _writer = self.writer.lock();
        if let Some(label) = self.find_label(key, cut) {
            return Some(label);
        }
        let values = self.values_of_key.get(key as usize)?;
        // Half of the label sets: a key of unbounded cardinality leaves capacity for the others.
        let cap = self.max_sets.load(Ordering::Relaxed) / 2;
        if cut == OTHER || values.load(Ordering::Relaxed) < cap {
            values.fetch_add(1, Ordering::Relaxed);
            if let Some(label) = self.insert_label(key, cut) {
                return Some(label);
            }
        }
        self.values_replaced.fetch_add(1, Ordering::Relaxed);
        self.find_label(key, OTHER).or_else(|| self.insert_label(key, OTHER))
    }

    fn find_label(&self, key: u32, value: &str) -> Option<u32> {
        let head = u64::from(key) << 32 | value.len() as u64;
        self.labels.find(hash_bytes(u64::from(key) + 2, value.as_bytes()), |offset| {
            self.arena.word(offset) == head && self.arena.bytes_equal(offset + 1, value.as_bytes())
        })
    }

    fn insert_label(&self, key: u32, value: &str) -> Option<u32> {
        let head = u64::from(key) << 32 | value.len() as u64;
        let hash = hash_bytes(u64::from(key) + 2, value.as_bytes());
        self.labels.insert(hash, || self.write_entry(head, value.as_bytes()))
    }

    fn write_entry(&self, head: u64, bytes: &[u8]) -> Option<u32> {
        let offset = self.arena.allocate(1 + bytes.len().div_ceil(8))?;
        self.arena.put(offset, head);
        self.arena.put_bytes(offset + 1, bytes);
        Some(offset)
    }

    fn intern_set(&self, draft: &SetDraft) -> LabelSetId {
        if draft.len == 0 {
            return LabelSetId::EMPTY;
        }
        if let Some(set) = self.find_set(draft.labels()) {
            return set;
        }
        let _writer = self.writer.lock();
        if let Some(set) = self.find_set(draft.labels()) {
            return set;
        }
        if self.sets.len() < self.max_sets.load(Ordering::Relaxed) as usize {
            if let Some(set) = self.insert_set(draft.labels()) {
                return set;
            }
        }
        self.values_replaced.fetch_add(draft.len as u64, Ordering::Relaxed);
        let mut others = SetDraft::new();
        for key in &draft.keys[..draft.len] {
            if let Some(label) = self.find_label(*key, OTHER).or_else(|| self.insert_label(*key, OTHER)) {
                others.put(*key, label);
            }
        }
        self.find_set(others.labels()).or_else(|| self.insert_set(others.labels())).unwrap_or(LabelSetId::EMPTY)
    }

    fn find_set(&self, labels: &[u32]) -> Option<LabelSetId> {
        let found = self.sets.find(hash_labels(labels), |offset| {
            self.arena.word(offset) == labels.len() as u64
                && labels.iter().zip(offset + 1..).all(|(label, at)| self.arena.word(at) == u64::from(*label))
        });
        found.map(|id| LabelSetId(id + 1))
    }

    fn insert_set(&self, labels: &[u32]) -> Option<LabelSetId> {
        let id = self.sets.insert(hash_labels(labels), || {
            let offset = self.arena.allocate(1 + labels.len())?;
            self.arena.put(offset, labels.len() as u64);
            for (label, at) in labels.iter().zip(offset + 1..) {
                self.arena.put(at, u64::from(*label));
            }
            Some(offset)
        })?;
        Some(LabelSetId(id + 1))
    }
}

fn hash_labels(labels: &[u32]) -> u64 {
    let hash = labels.iter().fold(labels.len() as u64, |hash, label| mixed(hash, u64::from(*label) + 1));
    mixed(hash, 0xA076_1D64_78BD_642F)
}

/// At most `max_bytes` of `text`, cut between two characters.
fn truncated(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let mut end = max_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(any(test, feature = "testing"))]
impl LabelTables {
    /// Holds the lock of writers.
    pub fn writer_lock_for_test(&self) -> super::WriterGuard<'_> {
        self.writer.lock()
    }
}
