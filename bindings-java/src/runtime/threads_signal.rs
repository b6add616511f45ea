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

/// What the scopes open on a thread say. The first word is 0 while nothing does and 1 while they do; it is written last
/// and cleared first. In the row of a thread that carries a virtual one it is the address of the virtual thread's words.
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

const SAYS_NOTHING: u64 = 0;
const SAYS: u64 = 1;

static TABLE: [Row; ROWS] = [const {
    Row {
        thread_id: AtomicU32::new(0),
        is_ours: AtomicU32::new(0),
        java_thread: AtomicUsize::new(0),
        scope: ScopeWords::empty(),
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

/// No thread carries a virtual one any more, as far as its row says.
pub fn carry_nothing() {
    let known = one_at_a_time();
    known.iter().filter_map(|thread_id| of(*thread_id)).for_each(|row| row.scope.carry_nothing());
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

/// Calls `visit` with the ids of the known threads that are the program's.
pub fn each_of_the_program(visit: impl FnMut(u32)) {
    let is_the_programs = |row: &Row| row.java_thread() != 0 && row.is_ours.load(Ordering::Relaxed) == 0;
    let known = one_at_a_time();
    known.iter().copied().filter(|thread_id| of(*thread_id).is_some_and(is_the_programs)).for_each(visit);
}

impl Row {
    /// The VM's structure of the thread; 0 once it ended.
    pub fn java_thread(&self) -> usize {
        self.java_thread.load(Ordering::Acquire)
    }
}

impl ScopeWords {
    pub const fn empty() -> Self {
        Self {
            state: AtomicU64::new(SAYS_NOTHING),
            label_set: AtomicU64::new(0),
            trace_id: [AtomicU64::new(0), AtomicU64::new(0)],
            span_id: AtomicU64::new(0),
            local_root_span_id: AtomicU64::new(0),
        }
    }

    /// Where Java writes.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub fn clear(&self) {
        self.state.store(SAYS_NOTHING, Ordering::Release);
    }

    pub fn says_something(&self) -> bool {
        self.state.load(Ordering::Acquire) != SAYS_NOTHING
    }

    /// Lets a virtual thread's words speak for the thread that carries it.
    pub fn carry(&self, words: &'static ScopeWords) {
        self.state.store(words.address() as u64, Ordering::SeqCst);
    }

    /// The thread carries no virtual one any more.
    pub fn carry_nothing(&self) {
        if self.state.load(Ordering::SeqCst) > SAYS {
            self.clear();
        }
    }

    /// What a sample of the thread knows of its request.
    #[inline]
    pub fn context(&self) -> Context {
        match self.state.load(Ordering::Acquire) {
            SAYS_NOTHING => Context::None,
            SAYS => self.own_context(),
            carried => {
                // SAFETY: `carry` stored the address of words that are static.
                let words = unsafe { &*(carried as *const ScopeWords) };
                if words.state.load(Ordering::Acquire) == SAYS {
                    words.own_context()
                } else {
                    Context::None
                }
            }
        }
    }

    #[inline]
    fn own_context(&self) -> Context {
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
    #[cfg(test)]
    pub fn write(&self, words: &[u64; 5]) {
        self.clear();
        self.label_set.store(words[0], Ordering::Relaxed);
        self.trace_id[0].store(words[1], Ordering::Relaxed);
        self.trace_id[1].store(words[2], Ordering::Relaxed);
        self.span_id.store(words[3], Ordering::Relaxed);
        self.local_root_span_id.store(words[4], Ordering::Relaxed);
        self.state.store(SAYS, Ordering::Release);
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
    fn a_thread_says_what_the_virtual_thread_that_it_carries_says() {
        static WORDS: ScopeWords = ScopeWords::empty();
        let row = enrol(900_002, 4096).unwrap();
        row.scope.carry(&WORDS);
        assert_eq!(row.scope.context(), Context::None, "it says nothing yet");
        WORDS.write(&[7, 1, 2, 3, 4]);
        assert!(matches!(row.scope.context(), Context::Inline(InlineContext { label_set: 7, .. })));
        row.scope.carry_nothing();
        assert_eq!(row.scope.context(), Context::None);
        row.scope.write(&[8, 0, 0, 0, 0]);
        row.scope.carry_nothing();
        assert!(
            matches!(row.scope.context(), Context::Inline(InlineContext { label_set: 8, .. })),
            "its own words stay"
        );
        leave(900_002);
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
