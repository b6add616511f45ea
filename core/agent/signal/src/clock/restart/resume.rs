//! Resumes waits of interrupted calls by `restart_syscall`, for at most [`MAX_RESUMED_NS`]. Only on x86-64: no call of AArch64 has the end of
//! its timeout in the restart block alone.

use super::{END_OF_RESUMED, NESTED_STACK_BYTES};
use crate::signals::arm::{self, SignalTarget};
use crate::signals::forward::{change_mask, thread_id};
use crate::walk::stack_space::has_stack;
use core::sync::atomic::Ordering;

/// Maximum duration of a resumed wait. Only our signal interrupts it, so signals of the host wait as long. A wait whose end
/// has passed returns without sleep, but may lose the processor to another thread.
const MAX_RESUMED_NS: u64 = 1_000_000;

/// The state of an interrupted call after its wait was resumed.
pub(super) enum ResumedWait {
    /// The call has this result.
    Ended(i64),
    /// The wait continues.
    Continues,
    /// It was not resumed: a handler has returned since the interruption, or this thread cannot resume waits.
    Refused,
}

/// Resumes the wait of a call with a restart block that returned EINTR. The signal of the running handler is not blocked
/// meanwhile: the handler recognizes a nested one by its timer.
///
/// # Safety
/// `context` is the kernel's of the running handler of `signal`.
pub(super) unsafe fn resume_wait(signal: libc::c_int, context: &libc::ucontext_t) -> ResumedWait {
    let bytes = NESTED_STACK_BYTES.load(Ordering::Relaxed);
    if bytes == 0 || !has_stack(context, &raw const bytes as usize, bytes) {
        return ResumedWait::Refused;
    }
    let target = SignalTarget::Thread(thread_id());
    let Ok(timer) = arm::create_timer(libc::CLOCK_MONOTONIC, target, signal, END_OF_RESUMED) else {
        return ResumedWait::Refused;
    };
    // A signal that comes before the call ends the restart block: then the call returns at once.
    let end_ns = arm::monotonic_ns() + MAX_RESUMED_NS;
    let signals = 1u64 << (signal - 1);
    let mut resumed = ResumedWait::Refused;
    if arm::arm_timer(timer, end_ns) == 0 && change_mask(libc::SIG_UNBLOCK, signals) {
        // SAFETY: writes to the memory of the interrupted call, which has not returned to the program.
        resumed = match unsafe { libc::syscall(libc::SYS_restart_syscall) } {
            outcome @ 0.. => ResumedWait::Ended(outcome),
            _ if arm::monotonic_ns() >= end_ns => ResumedWait::Continues,
            _ => ResumedWait::Refused,
        };
        change_mask(libc::SIG_BLOCK, signals);
    }
    arm::delete_timer(timer);
    resumed
}

/// Whether the kernel keeps a restart block for an interrupted call of this context.
pub(super) fn has_restart_block(number: libc::c_long, context: &libc::ucontext_t) -> bool {
    let flags = context.uc_mcontext.gregs[libc::REG_RSI as usize] as libc::c_int;
    match number {
        libc::SYS_poll | libc::SYS_nanosleep => true,
        libc::SYS_clock_nanosleep => flags & libc::TIMER_ABSTIME == 0,
        _ => false,
    }
}
