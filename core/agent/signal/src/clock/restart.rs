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
//! mode, entered by the instruction that is about to report EINTR, with `rax` not yet EINTR. In `rt_sigreturn` the
//! recorded registers are those of its own instruction, or those of the interrupted call with EINTR already in `rax`
//! (`restore_sigcontext` in arch/x86/kernel/signal_64.c sets `ip` last).
//!
//! # Timeouts
//! The thread was running when its CPU clock fired: before its sleep, or after it. Before the sleep a relative timeout has
//! just begun, and the restarted call waits for all of it. After the sleep, most calls return their result in spite of the
//! signal, or have left the rest of the timeout where the restarted call reads it (`select`, `ppoll`). Two kinds report
//! EINTR at the end of their timeout:
//! - `poll`: the kernel has the end of the timeout in its restart block until a signal handler returns (`do_restart_poll`
//!   in fs/select.c, since Linux 2.6.24; `restore_sigcontext`). The handler resumes that wait for at most
//!   `MAX_RESUMED_NS`: at its end it has the result of the call. The signal that ends it is nested, so the stack needs space
//!   for a second frame: a signal stack of 8 KiB, as Rust's threads have, is too small, and the call is repeated.
//! - `accept`, and `recv` on Unix sockets, with SO_RCVTIMEO (`inet_csk_wait_for_connect`, `unix_stream_read_generic`): the
//!   end is unknown, so the restarted call may wait for the timeout a second time. Never less than requested.
//!
//! # Wall requests
//! They go to threads that were in no such call when their state was read (`signal_ends_wait`), but may have begun one since. There
//! is no record of the interruption. `poll`, `nanosleep` and `clock_nanosleep` with a relative time have a restart block, which the
//! return from any handler clears: their wait can be resumed only if no handler of the host has run. Such a call is repeated
//! after the resumed wait, and thus takes longer by that and by the time between the look at the thread and the signal. Other calls
//! return EINTR.
//!
//! # Upstream facts
//! - The kernel preserves all registers except `rax`, `rcx` and `r11` across `syscall` (System V ABI, x86-64
//!   supplement, A.2.1), so the signal context still holds the arguments. The system call number in `rax` is lost.
//! - glibc 2.17–2.42 loads the number by `mov $number,%eax` right before `syscall`, or with one reload of `%edi` from
//!   the stack in between (`SYSCALL_CANCEL`, sysdeps/unix/sysv/linux/x86_64/sysdep.h). Other code sequences are not
//!   restarted.
//! - A pending host signal must not run its handler between ours and the restarted call. Our handler blocks all
//!   signals except faults, so the kernel delivers it after the restart, as if it had arrived before the call.

#[cfg(target_arch = "x86_64")]
use crate::signals::arm::{self, SignalTarget};
#[cfg(target_arch = "x86_64")]
use crate::signals::forward::{change_mask, thread_id};
use crate::signals::overflow::OverflowRecord;
use crate::walk::guarded;
use core::sync::atomic::{AtomicUsize, Ordering};

#[cfg(target_arch = "x86_64")]
const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// The address after the instruction by which the thread entered the kernel before the overflow. `None` when the event
/// overflowed in user mode, or when the call already had its result.
#[cfg(target_arch = "x86_64")]
fn kernel_entered_from(overflow: &OverflowRecord) -> Option<u64> {
    let (rax, rip) = overflow.kernel_entry()?;
    (rax as i64 != INTERRUPTED).then_some(rip)
}

/// Calls that may be repeated after EINTR, because they transferred and changed nothing. Excludes `close` and
/// `connect`.
#[cfg(target_arch = "x86_64")]
const RESTARTABLE: [libc::c_long; 26] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_select,
    libc::SYS_pause,
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
    libc::SYS_epoll_wait,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_accept4,
];

/// The number of the call whose `syscall` instruction ends at `pc`, if the preceding code is a known sequence.
#[cfg(target_arch = "x86_64")]
fn call_number(pc: usize) -> Option<libc::c_long> {
    let mut code = [0u8; 16];
    for (half, at) in code.chunks_exact_mut(8).zip([pc.wrapping_sub(16), pc.wrapping_sub(8)]) {
        half.copy_from_slice(&guarded::read_u64(at)?.to_ne_bytes());
    }
    let before = code.strip_suffix(&[0x0f, 0x05])?;
    // mov disp8(%rsp),%edi · mov (%rsp),%edi · nothing
    let before = match before {
        [rest @ .., 0x8b, 0x7c, 0x24, _] if matches!(rest, [.., 0xb8, _, _, _, _]) => rest,
        [rest @ .., 0x8b, 0x3c, 0x24] if matches!(rest, [.., 0xb8, _, _, _, _]) => rest,
        all => all,
    };
    match before {
        [.., 0xb8, a, b, c, d] => Some(libc::c_long::from(u32::from_le_bytes([*a, *b, *c, *d]))),
        _ => None,
    }
}

/// Maximum duration of a resumed wait. Only our signal interrupts it, so signals of the host wait as long. A wait whose end
/// has passed returns without sleep, but may lose the processor to another thread.
#[cfg(target_arch = "x86_64")]
const MAX_RESUMED_NS: u64 = 1_000_000;

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

/// Whether a nested signal finds `bytes` of stack below `here`: on the signal stack, whose size the kernel recorded at the
/// delivery (`save_altstack_ex`), or as far as the thread's stack is mapped.
#[cfg(target_arch = "x86_64")]
fn has_stack(context: &libc::ucontext_t, here: usize, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    let lowest = context.uc_stack.ss_sp as usize;
    if (lowest..lowest.saturating_add(context.uc_stack.ss_size)).contains(&here) {
        return here - lowest >= bytes;
    }
    (1..=bytes.div_ceil(PAGE)).all(|page| guarded::is_readable(here.wrapping_sub(page * PAGE)))
}

/// The state of an interrupted call after its wait was resumed.
#[cfg(target_arch = "x86_64")]
enum ResumedWait {
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
#[cfg(target_arch = "x86_64")]
unsafe fn resume_wait(signal: libc::c_int, context: &libc::ucontext_t) -> ResumedWait {
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
#[cfg(target_arch = "x86_64")]
fn has_restart_block(number: libc::c_long, context: &libc::ucontext_t) -> bool {
    let flags = context.uc_mcontext.gregs[libc::REG_RSI as usize] as libc::c_int;
    match number {
        libc::SYS_poll | libc::SYS_nanosleep => true,
        libc::SYS_clock_nanosleep => flags & libc::TIMER_ABSTIME == 0,
        _ => false,
    }
}

/// The number of a call that returns EINTR to the program, and the context.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler, which has exclusive access to it.
#[cfg(target_arch = "x86_64")]
unsafe fn interrupted_call<'a>(ucontext: *mut libc::c_void) -> Option<(libc::c_long, &'a mut libc::ucontext_t)> {
    // SAFETY: valid by the caller's contract.
    let context = unsafe { ucontext.cast::<libc::ucontext_t>().as_mut()? };
    let [rax, pc] = [libc::REG_RAX, libc::REG_RIP].map(|register| context.uc_mcontext.gregs[register as usize]);
    // SAFETY: the caller's contract.
    if rax != INTERRUPTED || unsafe { guarded::blocks_faults(ucontext) } {
        return None;
    }
    Some((call_number(pc as usize).filter(|number| RESTARTABLE.contains(number))?, context))
}

/// Makes the thread repeat the interrupted call, or return from it with its result.
#[cfg(target_arch = "x86_64")]
fn leave_call(context: &mut libc::ucontext_t, number: libc::c_long, resumed: &ResumedWait) {
    const SYSCALL_BYTES: i64 = 2;
    let registers = &mut context.uc_mcontext.gregs;
    match resumed {
        ResumedWait::Ended(outcome) => registers[libc::REG_RAX as usize] = *outcome,
        ResumedWait::Continues | ResumedWait::Refused => {
            registers[libc::REG_RAX as usize] = number;
            registers[libc::REG_RIP as usize] -= SYSCALL_BYTES;
        }
    }
}

/// Ends the interrupted system call with its result, or makes the thread repeat it, if it would return EINTR because of the
/// perf event whose signal is being handled. `overflow` is the record of that signal. Nothing if the thread blocks the fault
/// signals, since code is read.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler of `signal`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn restart_interrupted_call(
    signal: libc::c_int,
    ucontext: *mut libc::c_void,
    overflow: &OverflowRecord,
) {
    // SAFETY: the caller's contract; this handler has exclusive access to the context until it returns.
    let Some((number, context)) = (unsafe { interrupted_call(ucontext) }) else { return };
    let [rdx, pc] = [libc::REG_RDX, libc::REG_RIP].map(|register| context.uc_mcontext.gregs[register as usize]);
    if kernel_entered_from(overflow) != Some(pc as u64) {
        return;
    }
    let has_timeout = number == libc::SYS_poll && rdx as i32 > 0;
    // SAFETY: the context is the kernel's, by the caller's contract.
    let resumed = if has_timeout { unsafe { resume_wait(signal, context) } } else { ResumedWait::Refused };
    leave_call(context, number, &resumed);
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
    // SAFETY: the context is the kernel's, by the caller's contract.
    match unsafe { resume_wait(signal, context) } {
        ResumedWait::Refused => {}
        resumed => leave_call(context, number, &resumed),
    }
}

/// Whether the thread is still in the system call, or at the faulting instruction, in which the event overflowed: no code
/// of the program ran since. The kernel moves back to the instruction of a call that it restarts.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler.
pub(crate) unsafe fn is_in_recorded_call(ucontext: *mut libc::c_void, overflow: &OverflowRecord) -> bool {
    const RESTARTED: u64 = 2;
    // SAFETY: the caller's contract.
    let pc = unsafe { guarded::interrupted_pc(ucontext) };
    overflow.kernel_entry().is_some_and(|(_, entered_from)| entered_from == pc || entered_from == pc + RESTARTED)
}

/// Whether the thread returns from a call that may have unblocked signals; `None` outside of system calls.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler, and the thread does not block the fault signals.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn is_in_masking_call(ucontext: *mut libc::c_void) -> Option<bool> {
    // SAFETY: the caller's contract.
    let pc = unsafe { guarded::is_in_system_call(ucontext).then(|| guarded::interrupted_pc(ucontext))? };
    Some(call_number(pc as usize) == Some(libc::SYS_rt_sigprocmask))
}

/// Whether the thread returns from a call that may have unblocked signals; `None` outside of system calls. The number of a
/// call stays in `x8`.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler, and the thread does not block the fault signals.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn is_in_masking_call(ucontext: *mut libc::c_void) -> Option<bool> {
    // SAFETY: the caller's contract.
    let is_in_call = unsafe { guarded::is_in_system_call(ucontext) };
    // SAFETY: the caller's contract.
    let context = unsafe { ucontext.cast::<libc::ucontext_t>().as_ref()? };
    is_in_call.then(|| context.uc_mcontext.regs[8] == libc::SYS_rt_sigprocmask as u64)
}

/// Not implemented for this architecture, on which `auto` does not use perf.
///
/// # Safety
/// None required; the signature matches the other architecture.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn restart_interrupted_call(_: libc::c_int, _: *mut libc::c_void, _: &OverflowRecord) {}

/// Not implemented for this architecture: the calls return EINTR.
///
/// # Safety
/// None required; the signature matches the other architecture.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn continue_wait(_: libc::c_int, _: *mut libc::c_void) {}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::signals::overflow::{BUFFER_BYTES, HEAD_OFFSET, PAGE, RECORD_BYTES};

    const ABI_64: u64 = 2;

    fn number_of(code: &[u8]) -> Option<libc::c_long> {
        let mut memory = [0x90u8; 32];
        memory[32 - code.len()..].copy_from_slice(code);
        call_number(memory.as_ptr() as usize + 32)
    }

    #[test]
    fn the_code_sequences_of_glibc_give_the_call_number() {
        assert_eq!(number_of(&[0xb8, 7, 0, 0, 0, 0x0f, 0x05]), Some(libc::SYS_poll));
        assert_eq!(number_of(&[0xb8, 0x19, 1, 0, 0, 0x8b, 0x7c, 0x24, 4, 0x0f, 0x05]), Some(libc::SYS_epoll_pwait));
        assert_eq!(number_of(&[0xb8, 0xe6, 0, 0, 0, 0x8b, 0x3c, 0x24, 0x0f, 0x05]), Some(libc::SYS_clock_nanosleep));
    }

    #[test]
    fn other_code_before_a_system_call_gives_no_number() {
        assert_eq!(number_of(&[0x48, 0x89, 0xf8, 0x0f, 0x05]), None, "mov %rdi,%rax, as in syscall(2)");
        assert_eq!(number_of(&[0xb8, 7, 0, 0, 0, 0x90, 0x90]), None, "no system call");
    }

    /// It wraps around the end of the page.
    const LAST_RECORD: u64 = 103;

    /// A ring buffer whose last record is of an overflow in mode `mode`, entered from address `entered_from`.
    fn buffer_with(mode: u64, rax: i64, entered_from: u64) -> Vec<u64> {
        let mut buffer = vec![0; BUFFER_BYTES / 8];
        let head = LAST_RECORD * RECORD_BYTES;
        buffer[HEAD_OFFSET / 8] = head;
        for (index, word) in
            [9 | mode << 32 | RECORD_BYTES << 48, 0, ABI_64, rax as u64, entered_from].into_iter().enumerate()
        {
            buffer[PAGE / 8 + ((head - RECORD_BYTES) as usize / 8 + index) % (PAGE / 8)] = word;
        }
        buffer
    }

    const KERNEL: u64 = 1;
    const USER: u64 = 2;
    /// `rax` while a call has no result yet.
    const INSIDE: i64 = -(libc::ENOSYS as i64);
    const POLL: [u8; 16] = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xb8, 7, 0, 0, 0, 0x0f, 0x05];

    /// `rax` after the restart, and the change of `rip`.
    fn after_restart(code: &[u8], rax: i64, buffer: impl Fn(u64) -> Vec<u64>) -> (i64, i64) {
        let end = code.as_ptr() as usize + code.len();
        // SAFETY: an all-zero context is a valid value; the fields read below are set.
        let mut context: libc::ucontext_t = unsafe { core::mem::zeroed() };
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = rax;
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = end as i64;
        let buffer = buffer(end as u64);
        // SAFETY: a context and a ring buffer owned by this test.
        unsafe {
            if let Some(overflow) = OverflowRecord::read(buffer.as_ptr() as usize, LAST_RECORD) {
                restart_interrupted_call(libc::SIGURG, (&raw mut context).cast(), &overflow);
            }
        }
        let registers = context.uc_mcontext.gregs;
        (registers[libc::REG_RAX as usize], registers[libc::REG_RIP as usize] - end as i64)
    }

    #[test]
    fn a_blocking_call_is_restarted_except_one_that_must_not_be_repeated() {
        let mut close = POLL;
        close[10] = libc::SYS_close as u8;
        let here = |end| buffer_with(KERNEL, INSIDE, end);
        assert_eq!(after_restart(&POLL, INTERRUPTED, here), (libc::SYS_poll, -2));
        assert_eq!(after_restart(&close, INTERRUPTED, here), (INTERRUPTED, 0));
        assert_eq!(after_restart(&POLL, 1, here), (1, 0), "the call has a result");
    }

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

    #[test]
    fn a_call_that_a_handler_of_the_host_interrupted_returns_eintr() {
        let unchanged = (INTERRUPTED, 0);
        assert_eq!(
            after_restart(&POLL, INTERRUPTED, |_| buffer_with(KERNEL, INSIDE, 0x1234)),
            unchanged,
            "in rt_sigreturn"
        );
        let restored = |end| buffer_with(KERNEL, INTERRUPTED, end);
        assert_eq!(
            after_restart(&POLL, INTERRUPTED, restored),
            unchanged,
            "in rt_sigreturn, with the registers restored"
        );
        assert_eq!(after_restart(&POLL, INTERRUPTED, |end| buffer_with(USER, INSIDE, end)), unchanged, "in user mode");
        assert_eq!(after_restart(&POLL, INTERRUPTED, |_| vec![0; BUFFER_BYTES / 8]), unchanged, "no record");
    }
}
