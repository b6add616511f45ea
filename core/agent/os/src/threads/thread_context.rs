//! The context of native threads: a fixed hash table from thread id to context id. The thread itself writes its entry;
//! its handler reads it. Thread-local storage is unsuitable in handlers: its first access may allocate.

use crate::threads::listing::thread_id;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

const THREADS: usize = 4096;
const PROBES: usize = 64;
/// Key of an entry whose thread ended.
const TOMBSTONE: u64 = u64::MAX;

static KEYS: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
static CONTEXTS: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// See [`on_new_thread`].
static NEW_THREAD: OnceLock<fn()> = OnceLock::new();

fn probe_sequence(thread_id: u32) -> impl Iterator<Item = usize> {
    let first = (thread_id as usize).wrapping_mul(0x9E37_79B1);
    (0..PROBES).map(move |step| first.wrapping_add(step) % THREADS)
}

/// The context id of a thread; 0 without one. Safe in handlers.
pub fn context_of(thread_id: u32) -> u64 {
    for index in probe_sequence(thread_id) {
        let (Some(key), Some(context)) = (KEYS.get(index), CONTEXTS.get(index)) else { return 0 };
        match key.load(Ordering::Relaxed) {
            0 => return 0,
            known if known == u64::from(thread_id) => return context.load(Ordering::Relaxed),
            _ => {}
        }
    }
    0
}

/// The entry of the calling thread, released when the thread ends.
struct ThreadEntry {
    index: Cell<Option<usize>>,
    fork_generation: Cell<u32>,
}

impl Drop for ThreadEntry {
    fn drop(&mut self) {
        if let Some(index) = self.index.get() {
            CONTEXTS[index].store(0, Ordering::Relaxed);
            KEYS[index].store(TOMBSTONE, Ordering::Release);
        }
    }
}

thread_local! {
    static ENTRY: ThreadEntry = const { ThreadEntry { index: Cell::new(None), fork_generation: Cell::new(0) } };
}

/// Sets the context id of the calling thread; returns the previous one.
pub fn replace_current(context: u64) -> u64 {
    // During destruction of the thread's storage there is nothing to label.
    ENTRY
        .try_with(|entry| index_of(entry).map_or(0, |index| CONTEXTS[index].swap(context, Ordering::Relaxed)))
        .unwrap_or(0)
}

/// The context id of the calling thread.
pub fn current() -> u64 {
    ENTRY.try_with(|entry| index_of(entry).map_or(0, |index| CONTEXTS[index].load(Ordering::Relaxed))).unwrap_or(0)
}

/// Sets the function that each thread calls once, when it gets its entry: at its first scope. The first call wins.
pub fn on_new_thread(call: fn()) {
    let _ = NEW_THREAD.set(call);
}

fn index_of(entry: &ThreadEntry) -> Option<usize> {
    let generation = spanprof_signal::fork_generation();
    match entry.index.get() {
        Some(index) if entry.fork_generation.get() == generation => Some(index),
        known => {
            // A new thread, or the thread of a forked child, whose id changed.
            let context = known.map_or(0, |index| CONTEXTS[index].load(Ordering::Relaxed));
            let index = claim_index(thread_id(), context);
            entry.index.set(index);
            entry.fork_generation.set(generation);
            if let (None, Some(_), Some(call)) = (known, index, NEW_THREAD.get()) {
                call();
            }
            index
        }
    }
}

fn claim_index(thread_id: u32, context: u64) -> Option<usize> {
    for index in probe_sequence(thread_id) {
        let key = KEYS[index].load(Ordering::Relaxed);
        if key != 0 && key != TOMBSTONE && key != u64::from(thread_id) {
            continue;
        }
        // A free entry has context 0: its last owner reset it, or it was never used. Only the owner writes it.
        let claimed = KEYS[index].compare_exchange(key, u64::from(thread_id), Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_ok() {
            CONTEXTS[index].store(context, Ordering::Relaxed);
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_reads_its_own_context_and_its_entry_is_cleared_at_its_end() {
        let before = replace_current(10);
        let other_thread = std::thread::spawn(|| {
            assert_eq!(replace_current(20), 0);
            assert_eq!(context_of(thread_id()), 20);
            thread_id()
        })
        .join()
        .unwrap();
        assert_eq!(current(), 10);
        assert_eq!(context_of(thread_id()), 10);
        assert_eq!(context_of(other_thread), 0);
        replace_current(before);
    }

    #[test]
    fn a_thread_reports_itself_once_when_it_gets_its_entry() {
        thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
        on_new_thread(|| CALLS.set(CALLS.get() + 1));
        let calls_after_each = || {
            [0, 1, 2].map(|context| {
                replace_current(context);
                CALLS.get()
            })
        };
        assert_eq!(std::thread::spawn(calls_after_each).join().unwrap(), [1, 1, 1]);
    }

    #[test]
    fn entries_of_ended_threads_are_reused() {
        for _ in 0..2 * THREADS {
            let context_after = || (replace_current(1), current()).1;
            let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(context_after).unwrap();
            assert_eq!(thread.join().unwrap(), 1);
        }
    }
}
