//! Contexts by thread, for interpreters whose context table cannot be read: a fixed table from thread state to context
//! id. Written with the GIL held, read in handlers. No allocation, no lock. Not used while the context variable works.

use std::sync::atomic::{AtomicU64, Ordering};

/// Threads inside a labelled scope at one time; beyond it a thread goes without labels, counted.
const CAPACITY: usize = 1024;
/// A thread's entry lies within this many places behind its hash.
const REACH: usize = 32;

struct Entry {
    thread: AtomicU64,
    id: AtomicU64,
}

/// The table.
pub struct ThreadContexts {
    entries: [Entry; CAPACITY],
    refused: AtomicU64,
}

/// The process's one table.
pub static THREAD_CONTEXTS: ThreadContexts = ThreadContexts::new();

impl ThreadContexts {
    const fn new() -> Self {
        Self {
            entries: [const { Entry { thread: AtomicU64::new(0), id: AtomicU64::new(0) } }; CAPACITY],
            refused: AtomicU64::new(0),
        }
    }

    fn places(&self, thread: u64) -> impl Iterator<Item = &Entry> {
        let first = (thread >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40;
        (0..REACH).map(move |step| &self.entries[(first + step) % CAPACITY])
    }

    /// The id of `thread`; 0 when it has none.
    #[inline]
    pub fn get(&self, thread: u64) -> u64 {
        // Acquire pairs with the Release in `set`: who sees the thread sees an id that was its own.
        self.places(thread)
            .find(|entry| entry.thread.load(Ordering::Acquire) == thread)
            .map_or(0, |entry| entry.id.load(Ordering::Acquire))
    }

    /// Makes `id` the context of `thread` and returns the previous one. The GIL makes writers one at a time.
    pub fn set(&self, thread: u64, id: u64) -> u64 {
        if let Some(entry) = self.places(thread).find(|entry| entry.thread.load(Ordering::Relaxed) == thread) {
            let previous = entry.id.swap(id, Ordering::Release);
            if id == 0 {
                entry.thread.store(0, Ordering::Release);
            }
            return previous;
        }
        if id != 0 {
            match self.places(thread).find(|entry| entry.thread.load(Ordering::Relaxed) == 0) {
                Some(entry) => {
                    entry.id.store(id, Ordering::Release);
                    entry.thread.store(thread, Ordering::Release);
                }
                None => _ = self.refused.fetch_add(1, Ordering::Relaxed),
            }
        }
        0
    }

    /// Scopes that found no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_its_own_id_and_nobody_elses() {
        let table = ThreadContexts::new();
        for thread in 1..=500u64 {
            assert_eq!(table.set(thread * 64, thread), 0);
        }
        for thread in 1..=500u64 {
            assert_eq!(table.get(thread * 64), thread);
        }
        assert_eq!(table.get(64 * 501), 0);
    }

    #[test]
    fn leaving_a_scope_restores_what_was_before() {
        let table = ThreadContexts::new();
        assert_eq!(table.set(64, 7), 0);
        assert_eq!(table.set(64, 8), 7);
        assert_eq!(table.set(64, 7), 8);
        assert_eq!(table.set(64, 0), 7);
        assert_eq!(table.get(64), 0);
    }

    #[test]
    fn a_full_table_refuses_and_counts() {
        let table = ThreadContexts::new();
        for thread in 1..=5000u64 {
            table.set(thread * 64, thread);
        }
        assert!(table.refused() > 0);
        let held = (1..=5000u64).filter(|thread| table.get(thread * 64) == *thread).count() as u64;
        assert_eq!(held + table.refused(), 5000);
    }
}
