//! Waits for contended locks as samples: stack, lock class and context are captured by the waiting thread when its wait
//! begins. The sample is submitted when the wait has ended, so that a thread that owns the lock does little work. Not for
//! signal handlers. Not here: the events of monitors (`monitors`) and of `LockSupport.park` (`parks`).
//!
//! # Virtual threads
//! A virtual thread may continue on another carrier. Its wait is therefore stored under its `Thread.tid`, which is never
//! reused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use spanprof_aggregate::runtime::ReportedEvents;
use spanprof_profiler::binding::{lock_waits_are_reported, set_lock_waits_reported, submit_lock_wait, WaitStart};
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind, MAX_FRAMES};

use super::{frame_buffers, own_stack};
use crate::runtime::capture::thread_rows::{self, ThreadRow};
use crate::runtime::jvmti::Jvmti;

/// Waits in progress that are stored at the same time; further ones are lost and counted.
const MAX_STORED: usize = 65_536;
const SHARDS: usize = 16;

/// Number of the current period in which waits are reported. A wait that began in another one is discarded.
static PERIOD: AtomicU64 = AtomicU64::new(0);
/// The setting of the running profiler; 0 until the first wait after a change of settings.
static MAX_STACK_DEPTH: AtomicUsize = AtomicUsize::new(0);
static STORED_COUNT: AtomicUsize = AtomicUsize::new(0);
static WAITS: AtomicU64 = AtomicU64::new(0);
static WAIT_NS: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

pub struct PendingLockWait {
    period: u64,
    start: WaitStart,
    context: Context,
    flags: u8,
    /// The state of a virtual thread when it unmounted.
    virtual_state: i32,
    frames: Box<[RawFrame]>,
}

/// The mechanism that reports a wait: a thread can wait by both at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitKind {
    Monitor,
    Unmounted,
}

type StoredWaits = HashMap<(u64, WaitKind), PendingLockWait>;

/// The VM is never called under this lock.
fn stored(thread: u64) -> MutexGuard<'static, StoredWaits> {
    static STORED: LazyLock<[Mutex<StoredWaits>; SHARDS]> = LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
    STORED[thread as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports waits from now on, or no longer. Waits in progress are discarded when this changes.
pub fn set_reported(events: ReportedEvents) {
    let were_reported = lock_waits_are_reported();
    set_lock_waits_reported(events);
    MAX_STACK_DEPTH.store(0, Ordering::Relaxed);
    if were_reported != events.lock {
        PERIOD.fetch_add(1, Ordering::Relaxed);
        (0..SHARDS as u64).for_each(|shard| {
            let mut waits = stored(shard);
            STORED_COUNT.fetch_sub(waits.len(), Ordering::Relaxed);
            waits.clear();
        });
    }
}

/// The maximum depth of a stack. While the profiler starts, there is no running one yet.
fn max_stack_depth() -> usize {
    let depth = MAX_STACK_DEPTH.load(Ordering::Relaxed);
    if depth > 0 {
        return depth;
    }
    let Some(profiler) = ProfilerHandle::running() else { return MAX_FRAMES };
    let depth = profiler.config().max_stack_depth as usize;
    MAX_STACK_DEPTH.store(depth, Ordering::Relaxed);
    depth
}

/// The row of the calling thread; `None` for a thread of the profiler.
pub fn waiting_row() -> Option<&'static ThreadRow> {
    thread_rows::of(spanprof_os::thread_id()).filter(|row| !row.is_profiler_thread())
}

impl PendingLockWait {
    /// The wait that the calling thread began, for a lock of the class with this number.
    pub fn begin(jvmti: Jvmti, row: &ThreadRow, class: u32, start: WaitStart) -> Self {
        let (period, context) = (PERIOD.load(Ordering::Relaxed), row.scope.context());
        frame_buffers::with_buffer(|frames| {
            let depth = max_stack_depth().min(frames.len());
            let stack = own_stack::below_class(jvmti, Some(row), class, frames.get_mut(..depth).unwrap_or(&mut []));
            let flags = if stack.truncated { SampleFlags::TRUNCATED } else { 0 };
            Self { period, start, context, flags, virtual_state: 0, frames: stack.frames.into() }
        })
    }

    /// The wait of a virtual thread that unmounts in this state.
    pub fn of_virtual_thread(self, virtual_state: i32) -> Self {
        Self { virtual_state, ..self }
    }

    /// Whether the thread was in this state when it unmounted.
    pub fn has_state(&self, virtual_state: i32) -> bool {
        self.virtual_state == virtual_state
    }

    /// Stores the wait until the thread continues.
    pub fn store(self, thread: u64, kind: WaitKind) {
        if STORED_COUNT.load(Ordering::Relaxed) >= MAX_STORED {
            LOST.fetch_add(1, Ordering::Relaxed);
        } else if stored(thread).insert((thread, kind), self).is_none() {
            STORED_COUNT.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the stored wait of a thread that continues.
    pub fn take(thread: u64, kind: WaitKind) -> Option<Self> {
        let wait = stored(thread).remove(&(thread, kind))?;
        STORED_COUNT.fetch_sub(1, Ordering::Relaxed);
        Some(wait)
    }

    /// The wait has ended now: submits it, or the ones that it represents.
    pub fn end(self) {
        let now_ns = spanprof_os::monotonic_ns();
        if self.period != PERIOD.load(Ordering::Relaxed) || !lock_waits_are_reported() {
            return;
        }
        WAITS.fetch_add(1, Ordering::Relaxed);
        WAIT_NS.fetch_add(self.start.waited_ns(now_ns), Ordering::Relaxed);
        let Some(event) = self.start.event(now_ns) else { return };
        let Some(profiler) = ProfilerHandle::running() else { return };
        let sample = RawSample {
            kind: SampleKind::Lock,
            flags: SampleFlags(self.flags),
            thread_id: spanprof_os::thread_id(),
            time_ns: now_ns,
            values: [event.duration_ns, event.events],
            key: 0,
            context: self.context,
            frames: &self.frames,
        };
        submit_lock_wait(&profiler, &sample);
    }
}

/// Whether any wait is stored.
#[inline]
pub fn any_is_stored() -> bool {
    STORED_COUNT.load(Ordering::Relaxed) > 0
}

/// For `stats()`.
pub fn stats(out: &mut Vec<(&'static str, String)>) {
    out.push(("java.lock_waits", WAITS.load(Ordering::Relaxed).to_string()));
    out.push(("java.lock_wait_ns", WAIT_NS.load(Ordering::Relaxed).to_string()));
    out.push(("java.lock_waits_lost", LOST.load(Ordering::Relaxed).to_string()));
}
