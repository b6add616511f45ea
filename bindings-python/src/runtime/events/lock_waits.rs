//! The begin of a wait for a lock of Python: the walk of the waiting thread. The samples are those of
//! `spanprof_profiler::binding::LockWait`. The lock types are in `ffi`; the waits of semaphores and of asyncio are timed by the
//! package (`locks.py`).

use spanprof_profiler::binding::LockWait;

use spanprof_unwind::Registers;

use crate::runtime::capture::{frames_or_reason, walk_calling_thread, walk_native_callers};

/// Begins a wait of the calling thread and walks its stack. Leaves out the innermost `skipped` functions of Python; if some are left out,
/// the stack has no native frames. `None` while waits are not reported.
pub fn begin_lock_wait(skipped: usize) -> Option<Box<LockWait>> {
    let registers = Registers::here();
    LockWait::begin(skipped, |stack| {
        let captured = if skipped == 0 { walk_native_callers(&registers, stack) } else { walk_calling_thread(stack) };
        frames_or_reason(captured, stack)
    })
}
