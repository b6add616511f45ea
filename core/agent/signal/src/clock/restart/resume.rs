//! Resumes waits of interrupted calls by `restart_syscall`, for at most [`MAX_RESUMED_NS`]. Only on x86-64: no call of AArch64 has the end of
//! its timeout in the restart block alone.

use super::{END_OF_RESUMED, NESTED_STACK_BYTES};
use crate::signals::arm::{self, SignalTarget};
use crate::signals::forward::{change_mask, thread_id};
use crate::walk::guarded;
use core::sync::atomic::Ordering;

/// Maximum duration of a resumed wait. Only our signal interrupts it, so signals of the host wait as long. A wait whose end
/// has passed returns without sleep, but may lose the processor to another thread.
const MAX_RESUMED_NS: u64 = 1_000_000;

/// Whether a nested signal finds `bytes` of stack below `here`: on the signal stack, whose size the kernel recorded at the
/// delivery (`save_altstack_ex`), or as far as the thread's stack is mapped.
fn has_stack(context: &libc::ucontext_t, here: usize, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    let lowest = context.uc_stack.ss_sp as usize;
    if (lowest..lowest.saturating_add(context.uc_stack.ss_size)).contains(&here) {
        return here - lowest >= bytes;
    }
    (1..=bytes.div_ceil(PAGE)).all(|page| guarded::is_readable(here.wrapping_sub(page * PAGE)))
}

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

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_nested_signal_needs_space_on_the_signal_stack_or_down_to_the_guard_page() {
        const PAGE: usize = 4096;
        // SAFETY: maps new memory and protects its first page; an all-zero context is a valid value.
        let (lowest, mut context) = unsafe {
            let (all, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let memory = libc::mmap(core::ptr::null_mut(), 5 * PAGE, all, flags, -1, 0);
            assert_eq!(libc::mprotect(memory, PAGE, libc::PROT_NONE), 0);
            (memory as usize + PAGE, core::mem::zeroed::<libc::ucontext_t>())
        };
        let top = lowest + 4 * PAGE - 8;
        assert!(has_stack(&context, top, 3 * PAGE) && !has_stack(&context, top, 4 * PAGE), "a guard page");
        context.uc_stack.ss_sp = lowest as *mut libc::c_void;
        context.uc_stack.ss_size = 4 * PAGE;
        assert!(has_stack(&context, lowest + 2 * PAGE, 2 * PAGE), "a signal stack");
        assert!(!has_stack(&context, lowest + 2 * PAGE, 2 * PAGE + 1), "a signal stack");
    }
}
