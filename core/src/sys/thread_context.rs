//! Which context a native thread is in: a fixed table from thread id to context id. The thread itself writes, its handler
//! reads; thread-local storage would not do, since its first touch may allocate.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: usize = 4096;
const PROBES: usize = 64;
/// Key of a place whose thread ended.
const LEFT: u64 = u64::MAX;

static KEYS: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
static CONTEXTS: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// Threads that found no place; their samples carry no labels.
static WITHOUT_PLACE: AtomicU64 = AtomicU64::new(0);

fn places(thread_id: u32) -> impl Iterator<Item = usize> {
    let first = (thread_id as usize).wrapping_mul(0x9E37_79B1);
    (0..PROBES).map(move |step| first.wrapping_add(step) % THREADS)
}

/// The context id of a thread; 0 when it has none. Safe in handlers.
pub fn context_of(thread_id: u32) -> u64 {
    for place in places(thread_id) {
        let (Some(key), Some(context)) = (KEYS.get(place), CONTEXTS.get(place)) else { return 0 };
        match key.load(Ordering::Relaxed) {
            0 => return 0,
            known if known == u64::from(thread_id) => return context.load(Ordering::Relaxed),
            _ => {}
        }
    }
    0
}

/// The place of the calling thread, given back when it ends.
struct Place {
    index: Cell<Option<usize>>,
    fork_generation: Cell<u32>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(index) = self.index.get() {
            CONTEXTS[index].store(0, Ordering::Relaxed);
            KEYS[index].store(LEFT, Ordering::Release);
        }
    }
}

thread_local! {
    static PLACE: Place = const { Place { index: Cell::new(None), fork_generation: Cell::new(0) } };
}

/// Sets the context id of the calling thread; gives the one before.
pub fn replace_current(context: u64) -> u64 {
    // While the thread's storage is being taken down there is nothing to label.
    PLACE
        .try_with(|place| index_of(place).map_or(0, |index| CONTEXTS[index].swap(context, Ordering::Relaxed)))
        .unwrap_or(0)
}

/// The context id of the calling thread.
pub fn current() -> u64 {
    PLACE.try_with(|place| index_of(place).map_or(0, |index| CONTEXTS[index].load(Ordering::Relaxed))).unwrap_or(0)
}

/// Threads that found no place.
pub fn without_place() -> u64 {
    WITHOUT_PLACE.load(Ordering::Relaxed)
}

fn index_of(place: &Place) -> Option<usize> {
    let generation = super::fork_generation();
    match place.index.get() {
        Some(index) if place.fork_generation.get() == generation => Some(index),
        known => {
            // New here, or in a forked child, where the thread has another id.
            let context = known.map_or(0, |index| CONTEXTS[index].load(Ordering::Relaxed));
            let index = take_place(super::thread_id(), context);
            place.index.set(index);
            place.fork_generation.set(generation);
            index
        }
    }
}

fn take_place(thread_id: u32, context: u64) -> Option<usize> {
    for index in places(thread_id) {
        let key = KEYS[index].load(Ordering::Relaxed);
        if key != 0 && key != LEFT && key != u64::from(thread_id) {
            continue;
        }
        // A free place has context 0: whoever left it, or nobody, saw to that. Only its owner writes it.
        let taken = KEYS[index].compare_exchange(key, u64::from(thread_id), Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            CONTEXTS[index].store(context, Ordering::Relaxed);
            return Some(index);
        }
    }
    WITHOUT_PLACE.fetch_add(1, Ordering::Relaxed);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_reads_its_own_context_and_leaves_none_behind() {
        let before = replace_current(10);
        let theirs = std::thread::spawn(|| {
            assert_eq!(replace_current(20), 0);
            assert_eq!(context_of(crate::sys::thread_id()), 20);
            crate::sys::thread_id()
        })
        .join()
        .unwrap();
        assert_eq!(current(), 10);
        assert_eq!(context_of(crate::sys::thread_id()), 10);
        assert_eq!(context_of(theirs), 0);
        replace_current(before);
    }

    #[test]
    fn places_of_ended_threads_are_taken_again() {
        for _ in 0..2 * THREADS {
            std::thread::Builder::new().stack_size(64 * 1024).spawn(|| replace_current(1)).unwrap().join().unwrap();
        }
        assert_eq!(without_place(), 0);
    }
}
