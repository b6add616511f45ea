//! The acquisition of a lock that is not free.
//!
//! The random number of the sampling is drawn before the wait, and the stack walked only when the wait is long enough to be
//! recorded: a walk takes longer than most waits. Functions for waits return small values; a returned guard made a free lock take
//! 1.66 times as long. A free `Mutex` takes 1.11 times as long as that of the standard library, whose futex code is not copied
//! (poisoning, fairness).

use std::sync::{LockResult, TryLockError, TryLockResult};

use spanprof_signal::SampleFlags;

use super::guard::{LockGuard, WaitOfGuard};
use spanprof_profiler::binding::{LockWait, WaitStart};
use spanprof_unwind::Registers;

/// Attempts before the waiter walks its stack, as many as the standard library makes before it blocks
/// (library/std/src/sys/sync/mutex/futex.rs, Rust 1.88–1.95). Most waits for short critical sections end meanwhile.
const ATTEMPTS: u32 = 100;

/// Acquires a lock: without a wait if it is free. The rare cases are functions whose results fit into registers, so that the
/// guard of a free lock is not in memory.
#[inline(always)]
pub(super) fn acquire<G>(
    try_lock: impl Fn() -> TryLockResult<G>,
    lock: impl FnOnce() -> LockResult<G>,
) -> LockResult<LockGuard<G>> {
    match try_lock() {
        Ok(inner) => Ok(LockGuard::without_wait(inner)),
        Err(TryLockError::Poisoned(poisoned)) => LockGuard::of(Err(poisoned), WaitOfGuard::default()),
        Err(TryLockError::WouldBlock) => {
            let mut wait = None;
            if let Some(inner) = attempt_again(&try_lock, &mut wait) {
                return Ok(LockGuard::without_wait(inner));
            }
            let acquired = lock();
            LockGuard::of(acquired, end_wait(wait))
        }
    }
}

/// The result of an attempt, with the guard that `lock` returns.
#[inline(always)]
pub(super) fn attempted<G>(attempt: TryLockResult<G>) -> TryLockResult<LockGuard<G>> {
    match attempt {
        Ok(inner) => Ok(LockGuard::without_wait(inner)),
        Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        Err(TryLockError::Poisoned(poisoned)) => {
            LockGuard::of(Err(poisoned), WaitOfGuard::default()).map_err(TryLockError::Poisoned)
        }
    }
}

/// Attempts to acquire a lock until the wait is recorded, and then begins `wait`.
#[cold]
#[inline(never)]
fn attempt_again<G>(try_lock: &impl Fn() -> TryLockResult<G>, wait: &mut Option<Box<LockWait>>) -> Option<G> {
    let start = WaitStart::now()?;
    for _ in 0..ATTEMPTS {
        let attempt = try_lock();
        if start.is_recorded() {
            // A lock that was acquired just now is released again: the walk never holds it.
            break;
        }
        match attempt {
            Ok(inner) => return Some(inner),
            Err(TryLockError::Poisoned(_)) => break,
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    *wait = begin_wait(start, &Registers::here());
    None
}

/// Walks the stack of the waiting thread, from the caller of the function of `walk_start`.
fn begin_wait(start: WaitStart, walk_start: &Registers) -> Option<Box<LockWait>> {
    LockWait::begin_at(start, 0, |stack| {
        crate::runtime::walk::walk_calling_thread(walk_start, stack);
        SampleFlags(0)
    })
}

/// Ends a wait when the lock is acquired.
#[cold]
#[inline(never)]
fn end_wait(wait: Option<Box<LockWait>>) -> WaitOfGuard {
    let mut ended = WaitOfGuard::default();
    if let Some(wait) = wait.and_then(|wait| wait.end(spanprof_os::monotonic_ns())) {
        ended.0.push(wait);
    }
    ended
}
