//! Context ids by thread, for interpreters whose context table cannot be read: a fixed hash table from thread state to context
//! id. Written with the GIL held, read in handlers. No allocation, no lock. Unused when the context variable is readable.

use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of threads inside a labeled scope at one time. Scopes of further threads set no labels and are counted.
const CAPACITY: usize = 1024;
/// Length of the linear probe sequence of a thread's hash.
const MAX_PROBES: usize = 32;

struct ThreadContextEntry {
    thread: AtomicU64,
    id: AtomicU64,
}

/// Context ids by thread state.
pub struct ThreadContexts {
    entries: [ThreadContextEntry; CAPACITY],
    refused: AtomicU64,
}

/// The table of the process.
pub static THREAD_CONTEXTS: ThreadContexts = ThreadContexts::new();

impl ThreadContexts {
    const fn new() -> Self {
        Self {
            entries: [const { ThreadContextEntry { thread: AtomicU64::new(0), id: AtomicU64::new(0) } }; CAPACITY],
            refused: AtomicU64::new(0),
        }
    }

    fn probe(&self, thread: u64) -> impl Iterator<Item = &ThreadContextEntry> {
        let first = (thread >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40;
        (0..MAX_PROBES).map(move |step| &self.entries[(first + step) % CAPACITY])
    }

    /// The id of `thread`; 0 when it has none.
    #[inline]
    pub fn get(&self, thread: u64) -> u64 {
        // Acquire pairs with the Release in `set`: a reader that sees the thread also sees an id of this thread.
        self.probe(thread)
            .find(|entry| entry.thread.load(Ordering::Acquire) == thread)
            .map_or(0, |entry| entry.id.load(Ordering::Acquire))
    }

    /// Sets the context id of `thread` and returns the previous one. The GIL serializes writers.
    pub fn set(&self, thread: u64, id: u64) -> u64 {
        if let Some(entry) = self.probe(thread).find(|entry| entry.thread.load(Ordering::Relaxed) == thread) {
            let previous = entry.id.swap(id, Ordering::Release);
            if id == 0 {
                entry.thread.store(0, Ordering::Release);
            }
            return previous;
        }
        if id != 0 {
            match self.probe(thread).find(|entry| entry.thread.load(Ordering::Relaxed) == 0) {
                Some(entry) => {
                    entry.id.store(id, Ordering::Release);
                    entry.thread.store(thread, Ordering::Release);
                }
                None => _ = self.refused.fetch_add(1, Ordering::Relaxed),
            }
        }
        0
    }

    /// Number of scopes without labels because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_reads_its_own_id_and_no_other() {
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
    fn leaving_a_scope_restores_the_previous_id() {
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
        let stored = (1..=5000u64).filter(|thread| table.get(thread * 64) == *thread).count() as u64;
        assert_eq!(stored + table.refused(), 5000);
    }
}
