//! The table of the process's Java threads, which the handler searches by kernel thread id. A thread writes its own row.
//! The row also holds the thread's label set and span link, which Java writes through a direct buffer. Not here:
//! registration (`threads::registry`).

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::{Context, InlineContext};

pub const ROWS: usize = 16_384;
const PROBES: usize = 256;
/// Key of a row whose thread has ended.
const TOMBSTONE: u32 = u32::MAX;

/// One thread. The handler reads its first cache line only.
#[repr(C, align(64))]
pub struct ThreadRow {
    thread_id: AtomicU32,
    /// 1 for a thread of the profiler, which is not sampled.
    is_profiler_thread: AtomicU32,
    java_thread: AtomicUsize,
    pub scope: ScopeWords,
}

/// The context of a thread's open scopes: label set, trace id, span ids. The lowest bit of `state` tells whether there is one;
/// `state` is written last and cleared first. In the row of a carrier thread it is `MOUNTED` and the address of the mounted
/// virtual thread's words.
#[repr(C)]
pub struct ScopeWords {
    state: AtomicU64,
    label_set: AtomicU64,
    trace_id: [AtomicU64; 2],
    span_id: AtomicU64,
    local_root_span_id: AtomicU64,
    /// The open scopes. Of Java, as are the other bits of `state`.
    _entries: [AtomicU64; 8],
}

/// Size of [`ScopeWords`], as Java sees it.
pub const SCOPE_BYTES: usize = size_of::<ScopeWords>();

const EMPTY: u64 = 0;
const VALID: u64 = 1;
const MOUNTED: u64 = 2;

static TABLE: [ThreadRow; ROWS] = [const {
    ThreadRow {
        thread_id: AtomicU32::new(0),
        is_profiler_thread: AtomicU32::new(0),
        java_thread: AtomicUsize::new(0),
        scope: ScopeWords::empty(),
    }
}; ROWS];
fn probe_rows(thread_id: u32) -> impl Iterator<Item = &'static ThreadRow> {
    (0..PROBES).filter_map(move |step| TABLE.get((thread_id as usize).wrapping_add(step) % ROWS))
}

/// The row of a thread. Safe in handlers.
#[inline]
pub fn of(thread_id: u32) -> Option<&'static ThreadRow> {
    for row in probe_rows(thread_id) {
        match row.thread_id.load(Ordering::Acquire) {
            0 => return None,
            id if id == thread_id => return Some(row),
            _ => {}
        }
    }
    None
}

/// Uses a free row for a thread. `None` if no row is free. The caller excludes other writers.
pub fn occupy(thread_id: u32, java_thread: usize) -> Option<&'static ThreadRow> {
    let row = probe_rows(thread_id).find(|row| [0, TOMBSTONE].contains(&row.thread_id.load(Ordering::Relaxed)))?;
    row.scope.clear();
    row.is_profiler_thread.store(0, Ordering::Relaxed);
    row.java_thread.store(java_thread, Ordering::Relaxed);
    row.thread_id.store(thread_id, Ordering::Release);
    Some(row)
}

impl ThreadRow {
    /// Frees the row of a thread that ends. The caller excludes other writers.
    pub fn release(&self) {
        self.scope.clear();
        self.java_thread.store(0, Ordering::Release);
        self.thread_id.store(TOMBSTONE, Ordering::Release);
    }

    /// Sets the address of the VM's JavaThread.
    pub fn set_java_thread(&self, java_thread: usize) {
        self.java_thread.store(java_thread, Ordering::Release);
    }

    /// Marks the thread as the profiler's own.
    pub fn exclude(&self) {
        self.is_profiler_thread.store(1, Ordering::Relaxed);
    }

    /// Its index in the table, below [`ROWS`].
    pub fn index(&self) -> usize {
        (std::ptr::from_ref(self) as usize - TABLE.as_ptr() as usize) / size_of::<Self>()
    }

    pub fn is_profiler_thread(&self) -> bool {
        self.is_profiler_thread.load(Ordering::Relaxed) != 0
    }

    /// Address of the VM's JavaThread; 0 once the thread has ended.
    pub fn java_thread(&self) -> usize {
        self.java_thread.load(Ordering::Acquire)
    }
}

impl ScopeWords {
    pub const fn empty() -> Self {
        Self {
            state: AtomicU64::new(EMPTY),
            label_set: AtomicU64::new(0),
            trace_id: [AtomicU64::new(0), AtomicU64::new(0)],
            span_id: AtomicU64::new(0),
            local_root_span_id: AtomicU64::new(0),
            _entries: [const { AtomicU64::new(0) }; 8],
        }
    }

    /// The address that Java writes to.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub fn clear(&self) {
        self.state.store(EMPTY, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) & VALID != 0
    }

    /// Points the carrier's row to the words of the mounted virtual thread.
    pub fn mount(&self, words: &'static ScopeWords) {
        self.state.store(words.address() as u64 | MOUNTED, Ordering::SeqCst);
    }

    /// Clears the row if a virtual thread is mounted.
    pub fn unmount(&self) {
        if self.state.load(Ordering::SeqCst) & MOUNTED != 0 {
            self.clear();
        }
    }

    /// The context for a sample of this thread.
    #[inline]
    pub fn context(&self) -> Context {
        match self.state.load(Ordering::Acquire) {
            state if state & VALID != 0 => self.own_context(),
            state if state & MOUNTED != 0 => {
                // SAFETY: `mount` stored the address of words that are static.
                let scope = unsafe { &*((state - MOUNTED) as *const ScopeWords) };
                if scope.is_set() {
                    scope.own_context()
                } else {
                    Context::None
                }
            }
            _ => Context::None,
        }
    }

    #[inline]
    fn own_context(&self) -> Context {
        let mut trace_id = [0; 16];
        let (first, second) = trace_id.split_at_mut(8);
        first.copy_from_slice(&self.trace_id[0].load(Ordering::Relaxed).to_ne_bytes());
        second.copy_from_slice(&self.trace_id[1].load(Ordering::Relaxed).to_ne_bytes());
        let label_set = self.label_set.load(Ordering::Relaxed);
        Context::Inline(InlineContext {
            label_set: label_set as u32,
            capture: (label_set >> 32) as u32,
            trace_id,
            span_id: self.span_id.load(Ordering::Relaxed).to_ne_bytes(),
            local_root_span_id: self.local_root_span_id.load(Ordering::Relaxed).to_ne_bytes(),
        })
    }

    /// Writes as Java does: label set, trace id in two halves, span id, local root span id.
    #[cfg(test)]
    pub fn write(&self, words: &[u64; 5]) {
        self.clear();
        self.label_set.store(words[0], Ordering::Relaxed);
        self.trace_id[0].store(words[1], Ordering::Relaxed);
        self.trace_id[1].store(words[2], Ordering::Relaxed);
        self.span_id.store(words[3], Ordering::Relaxed);
        self.local_root_span_id.store(words[4], Ordering::Relaxed);
        self.state.store(VALID, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_row_is_its_place_in_the_table() {
        assert_eq!([0, 77, ROWS - 1].map(|index| TABLE[index].index()), [0, 77, ROWS - 1]);
    }
}
