//! The two parts of every label table: an append-only arena of words, and an open-addressing index from hash to id. Readers
//! need no lock; writers hold the writer lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::hash::words;

/// Probes after which an index counts as full: bounds the cost of keys that are chosen to collide.
const MAX_PROBES: usize = 128;

/// Append-only words.
pub(crate) struct Arena {
    words: &'static [AtomicU64],
    used: AtomicU32,
}

impl Arena {
    pub const fn new(words: &'static [AtomicU64]) -> Self {
        // Offset 0 means "no entry" in an index.
        Self { words, used: AtomicU32::new(1) }
    }

    /// Allocates `count` words; only under the writer lock.
    pub fn allocate(&self, count: usize) -> Option<u32> {
        let offset = self.used.load(Ordering::Relaxed);
        let end = offset as usize + count;
        if end > self.words.len() {
            return None;
        }
        self.used.store(end as u32, Ordering::Relaxed);
        Some(offset)
    }

    pub fn word(&self, offset: u32) -> u64 {
        self.words.get(offset as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    pub fn put(&self, offset: u32, value: u64) {
        if let Some(word) = self.words.get(offset as usize) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub fn put_bytes(&self, offset: u32, bytes: &[u8]) {
        for (word, at) in words(bytes).zip(offset..) {
            self.put(at, word);
        }
    }

    pub fn bytes_equal(&self, offset: u32, bytes: &[u8]) -> bool {
        words(bytes).zip(offset..).all(|(word, at)| self.word(at) == word)
    }

    /// Reads text that `put_bytes` wrote from a `str`.
    pub fn text(&self, offset: u32, len: usize) -> String {
        let mut bytes = Vec::with_capacity(len + 8);
        for index in 0..len.div_ceil(8) {
            bytes.extend_from_slice(&self.word(offset + index as u32).to_le_bytes());
        }
        bytes.truncate(len);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn used_bytes(&self) -> u64 {
        u64::from(self.used.load(Ordering::Relaxed)) * 8
    }
}

/// Hash → id → offset of the entry in the arena.
pub(crate) struct Index {
    /// High half: hash; low half: id + 1; 0: free.
    buckets: &'static [AtomicU64],
    offsets: &'static [AtomicU32],
    len: AtomicU32,
}

impl Index {
    pub const fn new(buckets: &'static [AtomicU64], offsets: &'static [AtomicU32]) -> Self {
        assert!(buckets.len().is_power_of_two());
        Self { buckets, offsets, len: AtomicU32::new(0) }
    }

    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Offset of an entry; 0 for an id without entry.
    pub fn offset(&self, id: u32) -> u32 {
        self.offsets.get(id as usize).map_or(0, |offset| offset.load(Ordering::Acquire))
    }

    /// The id of the entry with this hash for which `equal(offset)` is true.
    pub fn find(&self, hash: u64, mut equal: impl FnMut(u32) -> bool) -> Option<u32> {
        for bucket in self.probes(hash) {
            // Acquire: pairs with the Release of `insert`; the entry is complete.
            let word = bucket.load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if word >> 32 == hash >> 32 {
                let id = word as u32 - 1;
                if equal(self.offset(id)) {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Allocates the next id. `write` writes the entry and returns its offset. `None` when the index or arena is full. Only
    /// under the writer lock, after `find` failed under it.
    pub fn insert(&self, hash: u64, write: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let id = self.len.load(Ordering::Relaxed);
        let slot = self.offsets.get(id as usize)?;
        let bucket = self.probes(hash).find(|bucket| bucket.load(Ordering::Relaxed) == 0)?;
        // The id is taken first: a fork before the last store loses only the id.
        self.len.store(id + 1, Ordering::Relaxed);
        let offset = write()?;
        slot.store(offset, Ordering::Release);
        // Release: a reader that finds the id sees its entry.
        bucket.store(hash >> 32 << 32 | u64::from(id + 1), Ordering::Release);
        Some(id)
    }

    fn probes(&self, hash: u64) -> impl Iterator<Item = &'static AtomicU64> {
        let buckets = self.buckets;
        let mask = buckets.len() - 1;
        (0..MAX_PROBES.min(buckets.len()))
            .filter_map(move |step| buckets.get((hash as usize).wrapping_add(step) & mask))
    }
}
