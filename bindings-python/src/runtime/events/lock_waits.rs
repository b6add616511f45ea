//! The begin of a wait for a lock of Python: the walk of the waiting thread. The samples are those of
//! `spanprof_profiler::binding::LockWait`. The lock types are in `ffi`; the waits of semaphores and of asyncio are timed by the
//! package (`locks.py`).

use spanprof_profiler::binding::LockWait;

use crate::runtime::capture::walk_calling_thread_or_reason;

/// Begins a wait of the calling thread and walks its stack. Leaves out the innermost `skipped` frames. `None` while waits
/// are not reported.
pub fn begin_lock_wait(skipped: usize) -> Option<Box<LockWait>> {
    LockWait::begin(skipped, walk_calling_thread_or_reason)
}
