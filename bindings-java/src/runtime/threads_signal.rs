//! The Java threads of the process: a fixed table that the handler searches by kernel thread id. A row is written by its
//! own thread; what a thread's scopes say lies in the row itself, where Java writes it through a direct buffer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use spanprof_signal::{Context, InlineContext};

const ROWS: usize = 16_384;
const PROBES: usize = 256;
/// Key of a row whose thread ended.
const LEFT: u32 = u32::MAX;

/// One thread, one cache line.
#[repr(C, align(64))]
pub struct Row {
    thread_id: AtomicU32,
    /// 1 for a thread of our own, which no profile shows.
    is_ours: AtomicU32,
    java_thread: AtomicUsize,
    pub scope: ScopeWords,
}

/// What the scopes open on a thread say. The first word is 0 while nothing does; it is written last and cleared first.
#[repr(C)]
pub struct ScopeWords {
    state: AtomicU64,
    label_set: AtomicU64,
    trace_id: [AtomicU64; 2],
    span_id: AtomicU64,
    local_root_span_id: AtomicU64,
}

/// Bytes of [`ScopeWords`], as Java sees them.
pub const SCOPE_BYTES: usize = size_of::<ScopeWords>();

static TABLE: [Row; ROWS] = [const {
    Row {
        thread_id: AtomicU32::new(0),
        is_ours: AtomicU32::new(0),
        java_thread: AtomicUsize::new(0),
        scope: ScopeWords {
            state: AtomicU64::new(0),
            label_set: AtomicU64::new(0),
            trace_id: [AtomicU64::new(0), AtomicU64::new(0)],
            span_id: AtomicU64::new(0),
            local_root_span_id: AtomicU64::new(0),
        },
    }
}; ROWS];
static WITHOUT_ROW: AtomicU64 = AtomicU64::new(0);

fn places(thread_id: u32) -> impl Iterator<Item = &'static Row> {
    (0..PROBES).filter_map(move |step| TABLE.get((thread_id as usize).wrapping_add(step) % ROWS))
}

/// The ids that have rows. Rows are given and taken by one thread at a time, on normal ground; handlers only read.
fn one_at_a_time() -> MutexGuard<'static, BTreeSet<u32>> {
    static KNOWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The row of a thread. Safe in handlers.
#[inline]
pub fn of(thread_id: u32) -> Option<&'static Row> {
    for row in places(thread_id) {
        match row.thread_id.load(Ordering::Acquire) {
            0 => return None,
            known if known == thread_id => return Some(row),
            _ => {}
        }
    }
    None
}

/// Makes a thread known, or known anew. `None` when the table is full where it should be; it is counted.
pub fn enrol(thread_id: u32, java_thread: usize) -> Option<&'static Row> {
    let mut known = one_at_a_time();
    if let Some(row) = of(thread_id) {
        if java_thread != 0 {
            row.java_thread.store(java_thread, Ordering::Release);
        }
        return Some(row);
    }
    for row in places(thread_id) {
        if [0, LEFT].contains(&row.thread_id.load(Ordering::Relaxed)) {
            row.scope.clear();
            row.is_ours.store(0, Ordering::Relaxed);
            row.java_thread.store(java_thread, Ordering::Relaxed);
            row.thread_id.store(thread_id, Ordering::Release);
            known.insert(thread_id);
            return Some(row);
        }
    }
    WITHOUT_ROW.fetch_add(1, Ordering::Relaxed);
    None
}

/// The thread ends: it has no labels and no Java frames any more.
pub fn leave(thread_id: u32) {
    let mut known = one_at_a_time();
    if let Some(row) = of(thread_id) {
        row.scope.clear();
        row.java_thread.store(0, Ordering::Release);
        row.thread_id.store(LEFT, Ordering::Release);
        known.remove(&thread_id);
    }
}

/// Threads known now, and threads that found no row since the process began.
pub fn counts() -> (u64, u64) {
    (one_at_a_time().len() as u64, WITHOUT_ROW.load(Ordering::Relaxed))
}

/// Says that a thread is our own.
pub fn exempt(thread_id: u32) {
    if let Some(row) = of(thread_id) {
        row.is_ours.store(1, Ordering::Relaxed);
    }
}

/// The ids of the known threads that are the program's.
pub fn of_the_program() -> Vec<u32> {
    let is_the_programs = |row: &Row| row.java_thread() != 0 && row.is_ours.load(Ordering::Relaxed) == 0;
    let known = one_at_a_time();
    known.iter().copied().filter(|thread_id| of(*thread_id).is_some_and(is_the_programs)).collect()
}

impl Row {
    /// The VM's structure of the thread; 0 once it ended.
    pub fn java_thread(&self) -> usize {
        self.java_thread.load(Ordering::Acquire)
    }
}

impl ScopeWords {
    /// Where Java writes.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn clear(&self) {
        self.state.store(0, Ordering::Release);
    }

    /// What a sample of the thread knows of its request.
    #[inline]
    pub fn context(&self) -> Context {
        if self.state.load(Ordering::Acquire) == 0 {
            return Context::None;
        }
        let mut trace_id = [0; 16];
        let (first, second) = trace_id.split_at_mut(8);
        first.copy_from_slice(&self.trace_id[0].load(Ordering::Relaxed).to_ne_bytes());
        second.copy_from_slice(&self.trace_id[1].load(Ordering::Relaxed).to_ne_bytes());
        Context::Inline(InlineContext {
            label_set: self.label_set.load(Ordering::Relaxed) as u32,
            trace_id,
            span_id: self.span_id.load(Ordering::Relaxed).to_ne_bytes(),
            local_root_span_id: self.local_root_span_id.load(Ordering::Relaxed).to_ne_bytes(),
        })
    }

    /// Writes as Java does: set, trace id in two halves, span, local root.
    pub fn write(&self, words: &[u64; 5]) {
        self.state.store(0, Ordering::Release);
        self.label_set.store(words[0], Ordering::Relaxed);
        self.trace_id[0].store(words[1], Ordering::Relaxed);
        self.trace_id[1].store(words[2], Ordering::Relaxed);
        self.span_id.store(words[3], Ordering::Relaxed);
        self.local_root_span_id.store(words[4], Ordering::Relaxed);
        let says_something = words.iter().any(|word| *word != 0);
        self.state.store(u64::from(says_something), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_row_until_it_leaves() {
        let row = enrol(900_001, 4096).unwrap();
        row.scope.write(&[7, 1, 2, 3, 4]);
        let found = of(900_001).unwrap();
        assert_eq!(found.java_thread(), 4096);
        let Context::Inline(context) = found.scope.context() else { panic!("no context") };
        assert_eq!((context.label_set, context.span_id), (7, 3u64.to_ne_bytes()));
        leave(900_001);
        assert!(of(900_001).is_none());
        assert_eq!(enrol(900_001, 8192).unwrap().scope.context(), Context::None, "a new thread of the same id");
        leave(900_001);
    }

    #[test]
    fn threads_whose_ids_meet_have_rows_of_their_own() {
        let ids = [900_100, 900_100 + ROWS as u32, 900_100 + 2 * ROWS as u32];
        for id in ids {
            enrol(id, id as usize).unwrap();
        }
        leave(ids[0]);
        assert_eq!(of(ids[2]).unwrap().java_thread(), ids[2] as usize);
        for id in ids {
            leave(id);
        }
    }
}
