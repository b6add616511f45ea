//! Label sets of the process: keys and values interned to one small id. Written by host threads, read by the drain
//! thread. Not here: the label set of a thread or task (`context`).
//!
//! # Rules
//! 1. Tables only grow; an id is valid for the life of the process, in a forked child too.
//! 2. Lookups take no lock. Writers share one lock, held during an insertion.
//! 3. Every table is capped. Beyond a cap a value becomes `other`, and a key is left out; both are counted.
//! 4. The last store publishes an insertion, and its id is taken before the first store: a fork in between loses an id
//!    and never mixes two entries.
//!
//! The tables, and that of contexts, are static arrays of atomic words (.bss): zero pages until they are touched. A heap
//! structure behind a mutex could be inherited locked or incomplete by a forked child; here a fork within an insertion loses one
//! slot.

mod index;
mod tables;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use index::{Arena, Index};
pub(crate) use tables::LabelTables;

/// Id of an interned label set; 0 is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSetId(pub u32);

impl LabelSetId {
    /// The empty label set.
    pub const EMPTY: Self = Self(0);
}

/// Maximum number of distinct keys in a process.
pub(crate) const MAX_KEYS: usize = 256;
/// Maximum number of labels in one set.
pub(crate) const MAX_LABELS_PER_SET: usize = 64;
/// Maximum length of a key.
pub(crate) const MAX_KEY_BYTES: usize = 256;
/// Replaces a value beyond a cap.
pub(crate) const OTHER: &str = "other";
/// Distinct label sets of the process; beyond it, values become [`OTHER`] and are counted.
pub const MAX_SETS: u32 = 16_384;
/// Length of a label value, bytes; longer ones are truncated and counted.
pub const MAX_VALUE_BYTES: u32 = 1024;
/// Capacity of the tables: [`MAX_SETS`], and sets of `other` values.
const SET_CAPACITY: usize = MAX_SETS as usize + 4096;
const MAX_LABELS: usize = 65_536 + MAX_KEYS;
/// 8 MiB of address space; pages become resident as they fill.
const ARENA_WORDS: usize = 1 << 20;

// In .bss: no allocation, no initialization race, no lock that a forked child could inherit.
static ARENA: [AtomicU64; ARENA_WORDS] = [const { AtomicU64::new(0) }; ARENA_WORDS];
static KEY_BUCKETS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static KEY_OFFSETS: [AtomicU32; MAX_KEYS] = [const { AtomicU32::new(0) }; MAX_KEYS];
static VALUES_OF_KEY: [AtomicU32; MAX_KEYS] = [const { AtomicU32::new(0) }; MAX_KEYS];
static LABEL_BUCKETS: [AtomicU64; 1 << 17] = [const { AtomicU64::new(0) }; 1 << 17];
static LABEL_OFFSETS: [AtomicU32; MAX_LABELS] = [const { AtomicU32::new(0) }; MAX_LABELS];
static SET_BUCKETS: [AtomicU64; 1 << 17] = [const { AtomicU64::new(0) }; 1 << 17];
static SET_OFFSETS: [AtomicU32; SET_CAPACITY] = [const { AtomicU32::new(0) }; SET_CAPACITY];
static MERGED: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

static TABLES: LabelTables = LabelTables::new(
    Arena::new(&ARENA),
    Index::new(&KEY_BUCKETS, &KEY_OFFSETS),
    Index::new(&LABEL_BUCKETS, &LABEL_OFFSETS),
    Index::new(&SET_BUCKETS, &SET_OFFSETS),
    &VALUES_OF_KEY,
    &MERGED,
);

/// The tables of the process.
pub fn tables() -> &'static LabelTables {
    &TABLES
}

/// Losses by the caps since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelLosses {
    /// Values cut at [`MAX_VALUE_BYTES`].
    pub values_truncated: u64,
    /// Values that became `other`.
    pub values_replaced: u64,
    /// Labels left out: too many keys, or an empty one.
    pub labels_dropped: u64,
}

/// Fork-safe spin lock of the writers: a child ignores a lock that a thread of the parent holds. The word is the fork
/// generation of the holder plus one, or 0 when free.
pub(crate) struct WriterLock(AtomicU32);

impl WriterLock {
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub fn lock(&self) -> WriterGuard<'_> {
        let own = spanprof_signal::fork_generation().wrapping_add(1);
        let mut attempts = 0;
        loop {
            let found = self.0.load(Ordering::Relaxed);
            // Acquire: pairs with the Release of the guard; an insertion sees all earlier ones.
            let acquire = || self.0.compare_exchange_weak(found, own, Ordering::Acquire, Ordering::Relaxed);
            if found != own && acquire().is_ok() {
                return WriterGuard(self);
            }
            attempts += 1;
            if attempts < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    pub fn reset_after_fork(&self) {
        self.0.store(0, Ordering::Release);
    }
}

pub struct WriterGuard<'a>(&'a WriterLock);

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        self.0 .0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
