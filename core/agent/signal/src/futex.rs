//! Wait and wake on a futex word. The caller defines the meaning of the word. Used by the inbox, by parked threads and by the
//! exchange of wall requests. `wake` is async-signal-safe.

use crate::atomics::AtomicU32;
#[cfg(loom)]
use crate::atomics::Ordering;

/// Sleeps while `word` is `value`, for at most `timeout_ns`; without a limit when it is `None`. Spurious returns are
/// possible. True on timeout. May change errno.
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>) -> bool {
    let limit = timeout_ns
        .map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as libc::c_long });
    let limit = limit.as_ref().map_or(core::ptr::null(), |limit| limit as *const libc::timespec);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` is borrowed for the call; the kernel reads it and the timeout, and writes nothing.
    let outcome = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, limit) };
    // SAFETY: errno of this thread, just set by the call above.
    outcome == -1 && unsafe { *libc::__errno_location() } == libc::ETIMEDOUT
}

/// Wakes the threads that wait on `word`. May change errno.
#[cfg(not(loom))]
pub fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the address only identifies the wait queue; the kernel neither reads nor writes through it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, libc::c_int::MAX) };
}

/// Under loom a lost wakeup spins forever, which loom reports.
#[cfg(loom)]
pub fn wait(word: &AtomicU32, value: u32, _timeout_ns: Option<u64>) -> bool {
    while word.load(Ordering::Acquire) == value {
        loom::thread::yield_now();
    }
    false
}

#[cfg(loom)]
pub fn wake(_word: &AtomicU32) {}
