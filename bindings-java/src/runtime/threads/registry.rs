//! Registers the Java threads of the process in the table that the handler searches (`capture::thread_rows`). Not for signal
//! handlers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::runtime::capture::thread_rows::{self, ThreadRow};

static WITHOUT_ROW: AtomicU64 = AtomicU64::new(0);

/// The registered thread ids. Threads register and unregister under this lock, outside of handlers; handlers only read.
fn registered() -> MutexGuard<'static, BTreeSet<u32>> {
    static REGISTERED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a thread, or updates its JavaThread. `None` if no row is free; that is counted.
pub fn register(thread_id: u32, java_thread: usize) -> Option<&'static ThreadRow> {
    let mut thread_ids = registered();
    if let Some(row) = thread_rows::of(thread_id) {
        if java_thread != 0 {
            row.set_java_thread(java_thread);
        }
        return Some(row);
    }
    let row = thread_rows::occupy(thread_id, java_thread);
    if row.is_some() {
        thread_ids.insert(thread_id);
    } else {
        WITHOUT_ROW.fetch_add(1, Ordering::Relaxed);
    }
    row
}

/// Unregisters a thread that ends.
pub fn unregister(thread_id: u32) {
    let mut thread_ids = registered();
    if let Some(row) = thread_rows::of(thread_id) {
        row.release();
        thread_ids.remove(&thread_id);
    }
}

/// Unmounts the virtual threads of all rows.
pub fn unmount_all() {
    let thread_ids = registered();
    thread_ids.iter().filter_map(|thread_id| thread_rows::of(*thread_id)).for_each(|row| row.scope.unmount());
}

/// Registered threads, and threads that found no free row since the process began.
pub fn counts() -> (u64, u64) {
    (registered().len() as u64, WITHOUT_ROW.load(Ordering::Relaxed))
}

/// Marks a thread as the profiler's own.
pub fn exclude(thread_id: u32) {
    if let Some(row) = thread_rows::of(thread_id) {
        row.exclude();
    }
}

/// Calls `visit` with the ids of the registered threads of the program.
pub fn each_program_thread(visit: impl FnMut(u32)) {
    let belongs_to_program = |row: &ThreadRow| row.java_thread() != 0 && !row.is_profiler_thread();
    let thread_ids = registered();
    thread_ids
        .iter()
        .copied()
        .filter(|thread_id| thread_rows::of(*thread_id).is_some_and(belongs_to_program))
        .for_each(visit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::capture::thread_rows::{ScopeWords, ROWS};
    use spanprof_signal::{Context, InlineContext};

    #[test]
    fn a_thread_has_its_row_until_it_is_unregistered() {
        let row = register(900_001, 4096).unwrap();
        row.scope.write(&[7, 1, 2, 3, 4]);
        let same = thread_rows::of(900_001).unwrap();
        assert_eq!(same.java_thread(), 4096);
        let Context::Inline(context) = same.scope.context() else { panic!("no context") };
        assert_eq!((context.label_set, context.span_id), (7, 3u64.to_ne_bytes()));
        unregister(900_001);
        assert!(thread_rows::of(900_001).is_none());
        assert_eq!(register(900_001, 8192).unwrap().scope.context(), Context::None, "a new thread of the same id");
        unregister(900_001);
    }

    #[test]
    fn a_carrier_has_the_context_of_its_mounted_virtual_thread() {
        static WORDS: ScopeWords = ScopeWords::empty();
        let row = register(900_002, 4096).unwrap();
        row.scope.mount(&WORDS);
        assert_eq!(row.scope.context(), Context::None, "the virtual thread has no context yet");
        WORDS.write(&[7, 1, 2, 3, 4]);
        assert!(matches!(row.scope.context(), Context::Inline(InlineContext { label_set: 7, .. })));
        row.scope.unmount();
        assert_eq!(row.scope.context(), Context::None);
        row.scope.write(&[8, 0, 0, 0, 0]);
        row.scope.unmount();
        assert!(
            matches!(row.scope.context(), Context::Inline(InlineContext { label_set: 8, .. })),
            "its own words stay"
        );
        unregister(900_002);
    }

    #[test]
    fn threads_with_colliding_ids_have_separate_rows() {
        let ids = [900_100, 900_100 + ROWS as u32, 900_100 + 2 * ROWS as u32];
        for id in ids {
            register(id, id as usize).unwrap();
        }
        unregister(ids[0]);
        assert_eq!(thread_rows::of(ids[2]).unwrap().java_thread(), ids[2] as usize);
        for id in ids {
            unregister(id);
        }
    }
}
