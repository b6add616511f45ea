//! Restarts system calls that a clock signal or a wall request interrupted, so that no system call of the host returns EINTR
//! because of a sample.
//!
//! A perf event sends its signal at the overflow, which may fall between the entry of a blocking call and its sleep.
//! The kernel restarts most calls itself (SA_RESTART). The calls that signal(7) lists as "never restarted", and
//! socket calls with a timeout, return EINTR instead.
//!
//! A call that a host handler interrupted must return EINTR. If a sample falls into the return from that handler, the
//! signal context is the same as for a call that the sample interrupted. Only the kernel's record of the overflow
//! (PERF_SAMPLE_REGS_USER in the event's ring buffer, perf_event_open(2)) separates the two cases. It must show kernel
//! mode, entered by the instruction that is about to report EINTR, and a call without result. In `rt_sigreturn` the
//! recorded registers are those of its own instruction, or those of the interrupted call with EINTR already in the register of
//! the result (`restore_sigcontext` in arch/x86/kernel/signal_64.c and `restore_sigframe` in arch/arm64/kernel/signal.c set the
//! program counter last).
//!
//! # Timeouts
//! The thread was running when its CPU clock fired: before its sleep, or after it. Before the sleep a relative timeout has
//! just begun, and the restarted call waits for all of it. After the sleep, most calls return their result in spite of the
//! signal, or have left the rest of the timeout where the restarted call reads it (`select`, `ppoll`). Two kinds report
//! EINTR at the end of their timeout:
//! - `poll` of x86-64 (on AArch64 the C library calls `ppoll`): the kernel has the end of the timeout in its restart block until a
//!   signal handler returns (`do_restart_poll` in fs/select.c, since Linux 2.6.24; `restore_sigcontext`). The handler resumes that
//!   wait for at most `MAX_RESUMED_NS`: at its end it has the result of the call. The signal that ends it is nested, so the stack
//!   needs space for a second frame: a signal stack of 8 KiB, as Rust's threads have, is too small, and the call is repeated.
//! - `accept`, and `recv` on Unix sockets, with SO_RCVTIMEO (`inet_csk_wait_for_connect`, `unix_stream_read_generic`): the
//!   end is unknown, so the restarted call may wait for the timeout a second time. Never less than requested.
//!
//! # Wall requests
//! They go to threads that were in no such call when their state was read (`signal_ends_wait`), but may have begun one since. There
//! is no record of the interruption. `poll`, `nanosleep` and `clock_nanosleep` with a relative time have a restart block, which the
//! return from any handler clears: their wait can be resumed only if no handler of the host has run. Such a call is repeated
//! after the resumed wait, and thus takes longer by that and by the time between the look at the thread and the signal. Other calls
//! return EINTR, and so do all calls on AArch64, where only a record has the first argument.
//!
//! # Upstream facts
//! - A pending host signal must not run its handler between ours and the restarted call. Our handler blocks all
//!   signals except faults, so the kernel delivers it after the restart, as if it had arrived before the call.
//! - x86-64: the kernel preserves all registers except `rax`, `rcx` and `r11` across `syscall` (System V ABI, x86-64
//!   supplement, A.2.1), so the signal context still holds the arguments. The system call number in `rax` is lost.
//! - x86-64: glibc 2.17–2.42 loads the number by `mov $number,%eax` right before `syscall`, or with one reload of `%edi` from
//!   the stack in between (`SYSCALL_CANCEL`, sysdeps/unix/sysv/linux/x86_64/sysdep.h). Other code sequences are not
//!   restarted.
//! - AArch64: the kernel changes no register but `x0`, the first argument and the result; `x8` is the number. In the saved
//!   registers `x0` is the argument until the call returns (`invoke_syscall` in arch/arm64/kernel/syscall.c, Linux 5.0–6.18;
//!   `el0_svc_common` before), so the record of an overflow before that has it, and nothing else in user space does.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod resume;
#[cfg(all(test, not(miri)))] // Reads by the kernel.
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as architecture;
#[cfg(target_arch = "x86_64")]
use x86_64 as architecture;

#[cfg(target_arch = "x86_64")]
use self::resume::{has_restart_block, resume_wait, ResumedWait};
use crate::signals::overflow::OverflowRecord;
use crate::walk::guarded;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Calls that may be repeated after EINTR, because they transferred and changed nothing. Excludes `close` and
/// `connect`.
const RESTARTABLE: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_nanosleep,
    libc::SYS_accept,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_semop,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_futex,
    libc::SYS_semtimedop,
    libc::SYS_clock_nanosleep,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_accept4,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// The value of the timer that ends a resumed wait. No slot has it.
pub(crate) const END_OF_RESUMED: usize = 1;

/// Stack of a nested handler without a walk, below the kernel's frame.
const HANDLER_STACK_BYTES: usize = 8 << 10;

/// Stack that a nested signal needs, in bytes; 0 while no call may be resumed.
static NESTED_STACK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Sets whether handlers may call `timer_create` and `restart_syscall`, which a seccomp filter may punish with the end of
/// the process. False at first.
pub fn set_may_resume(may: bool) {
    // SAFETY: reads the auxiliary vector; 0 before Linux 5.14, whose frames have at most the size below.
    let frame_bytes = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) as usize }.max(4 << 10);
    NESTED_STACK_BYTES.store(if may { frame_bytes + HANDLER_STACK_BYTES } else { 0 }, Ordering::Relaxed);
}

/// The number of a call that returns EINTR to the program and may be repeated, and the context.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler, which has exclusive access to it.
unsafe fn interrupted_call<'a>(ucontext: *mut libc::c_void) -> Option<(libc::c_long, &'a mut libc::ucontext_t)> {
    // SAFETY: the caller's contract.
    if unsafe { !guarded::reports_interruption(ucontext) || guarded::blocks_faults(ucontext) } {
        return None;
    }
    // SAFETY: valid by the caller's contract.
    let context = unsafe { ucontext.cast::<libc::ucontext_t>().as_mut()? };
    let number = architecture::number(context)?;
    RESTARTABLE.contains(&number).then_some((number, context))
}

/// Ends the interrupted system call with its result, or makes the thread repeat it, if it would return EINTR because of the
/// perf event whose signal is being handled. `overflow` is the record of that signal. Nothing if the thread blocks the fault
/// signals, since code is read.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler of `signal`.
pub(crate) unsafe fn restart_interrupted_call(
    signal: libc::c_int,
    ucontext: *mut libc::c_void,
    overflow: &OverflowRecord,
) {
    // SAFETY: the caller's contract; this handler has exclusive access to the context until it returns.
    let Some((number, context)) = (unsafe { interrupted_call(ucontext) }) else { return };
    // SAFETY: the caller's contract.
    let pc = unsafe { guarded::interrupted_pc(ucontext) };
    let Some((result_register, entered_from)) = overflow.kernel_entry() else { return };
    if entered_from != pc || !architecture::is_unfinished(result_register) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_poll && context.uc_mcontext.gregs[libc::REG_RDX as usize] as i32 > 0 {
        // SAFETY: the context is the kernel's, by the caller's contract.
        if let ResumedWait::Ended(result) = unsafe { resume_wait(signal, context) } {
            context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
            return;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = signal;
    architecture::repeat(context, number, result_register);
}

/// Ends the call that a wall request's signal interrupted with its result, or makes the thread repeat it, if it has a restart
/// block and no handler of the host has returned since. Nothing if the thread blocks the fault signals, since code is read.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler of `signal`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn continue_wait(signal: libc::c_int, ucontext: *mut libc::c_void) {
    // SAFETY: the caller's contract; this handler has exclusive access to the context until it returns.
    let Some((number, context)) = (unsafe { interrupted_call(ucontext) }) else { return };
    if !has_restart_block(number, context) {
        return;
    }
    let rax = context.uc_mcontext.gregs[libc::REG_RAX as usize];
    // SAFETY: the context is the kernel's, by the caller's contract.
    match unsafe { resume_wait(signal, context) } {
        ResumedWait::Refused => {}
        ResumedWait::Continues => architecture::repeat(context, number, rax as u64),
        ResumedWait::Ended(result) => context.uc_mcontext.gregs[libc::REG_RAX as usize] = result,
    }
}

/// Nothing: without a record the first argument of the call is lost (see above), and it returns EINTR.
///
/// # Safety
/// None required; the signature matches the other architecture.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn continue_wait(_: libc::c_int, _: *mut libc::c_void) {}

/// Whether the thread is still in the system call, or at the faulting instruction, in which the event overflowed: no code
/// of the program ran since. The kernel moves back to the instruction of a call that it restarts.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler.
pub(crate) unsafe fn is_in_recorded_call(ucontext: *mut libc::c_void, overflow: &OverflowRecord) -> bool {
    // SAFETY: the caller's contract.
    let pc = unsafe { guarded::interrupted_pc(ucontext) };
    overflow
        .kernel_entry()
        .is_some_and(|(_, entered_from)| entered_from == pc || entered_from == pc + architecture::INSTRUCTION_BYTES)
}

/// Whether the thread returns from a call that may have unblocked signals; `None` outside of system calls.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler, and the thread does not block the fault signals.
pub(crate) unsafe fn is_in_masking_call(ucontext: *mut libc::c_void) -> Option<bool> {
    // SAFETY: the caller's contract.
    let is_in_call = unsafe { guarded::is_in_system_call(ucontext) };
    // SAFETY: the caller's contract.
    let context = unsafe { ucontext.cast::<libc::ucontext_t>().as_ref()? };
    is_in_call.then(|| architecture::number(context) == Some(libc::SYS_rt_sigprocmask))
}
