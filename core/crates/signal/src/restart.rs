//! Restarts system calls that a clock's signal interrupted, so that no call of the host returns EINTR because of a sample.
//!
//! A perf event sends its signal at the overflow, which may fall between the entry of a blocking call and its sleep. The
//! kernel restarts most calls itself (SA_RESTART). The calls listed by signal(7) under "never restarted", and socket calls
//! with a timeout, return EINTR instead.
//!
//! A call that a handler of the host interrupted looks the same when a sample falls into the return from that handler, and
//! must return EINTR. So only the kernel's own record of the overflow counts (PERF_SAMPLE_REGS_USER in the event's ring
//! buffer, perf_event_open(2)): it was in the kernel, which had been entered by the very instruction that is about to report
//! EINTR, and `rax` was not EINTR yet. In `rt_sigreturn`, the registers are those of its own instruction, or already those
//! of the interrupted call with EINTR in `rax` (`restore_sigcontext` in arch/x86/kernel/signal_64.c sets `ip` last).
//!
//! The thread was on a processor when its CPU clock fired, so a relative timeout has just begun: the call waits its whole
//! time again, and never less than the host asked for.
//!
//! # Upstream facts
//! - The kernel preserves all registers but `rax`, `rcx` and `r11` over `syscall` (System V ABI, x86-64 supplement, A.2.1),
//!   so the arguments still stand in the context of the signal. The number in `rax` is lost.
//! - glibc 2.17–2.42 loads it by `mov $number,%eax` right before `syscall`, or with one reload of `%edi` from the stack in
//!   between (`SYSCALL_CANCEL`, sysdeps/unix/sysv/linux/x86_64/sysdep.h). Other code sequences are left alone.
//! - A pending signal of the host must not run its handler between this one and the restarted call: the handler of the
//!   clocks blocks all signals but faults, so the kernel delivers it after the restart, as if it had come before the call.

use crate::guarded;
use crate::overflow::Record;

const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// The instruction behind the one that entered the kernel in which the event overflowed; `None` when it overflowed in user
/// mode, or when the call had its result already.
fn kernel_entered_from(overflow: &Record) -> Option<u64> {
    let (rax, rip) = overflow.kernel_entry()?;
    (rax as i64 != INTERRUPTED).then_some(rip)
}

/// Calls that may be made again after EINTR: they transferred nothing and changed nothing. Not `close` and `connect`.
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

/// The number of the call whose `syscall` instruction ends at `pc`, if the code before it is one of the known sequences.
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

/// Has the interrupted thread make its system call again if that is about to return EINTR because of the perf event whose
/// signal is being handled. `overflow` is the record of that signal.
///
/// # Safety
/// `ucontext` is the one that the kernel gave to the running handler, and the thread does not block the fault signals.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn restart_interrupted_call(ucontext: *mut libc::c_void, overflow: &Record) {
    // SAFETY: the caller's promise; the context is this handler's alone until it returns.
    let Some(context) = (unsafe { ucontext.cast::<libc::ucontext_t>().as_mut() }) else { return };
    let registers = &mut context.uc_mcontext.gregs;
    if registers[libc::REG_RAX as usize] != INTERRUPTED {
        return;
    }
    let pc = registers[libc::REG_RIP as usize];
    if kernel_entered_from(overflow) != Some(pc as u64) {
        return;
    }
    if let Some(number) = call_number(pc as usize).filter(|number| RESTARTABLE.contains(number)) {
        registers[libc::REG_RAX as usize] = number;
        registers[libc::REG_RIP as usize] = pc - 2;
    }
}

/// Not known for this architecture: `auto` does not use perf there.
///
/// # Safety
/// None needed; the signature is that of the other architecture.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn restart_interrupted_call(_ucontext: *mut libc::c_void, _overflow: &Record) {}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::overflow::{HEAD_OFFSET, PAGE, RECORD_BYTES, RING_BYTES};

    const ABI_64: u64 = 2;

    fn number_of(code: &[u8]) -> Option<libc::c_long> {
        let mut memory = [0x90u8; 32];
        memory[32 - code.len()..].copy_from_slice(code);
        call_number(memory.as_ptr() as usize + 32)
    }

    #[test]
    fn the_sequences_of_the_c_library_give_the_number_of_the_call() {
        assert_eq!(number_of(&[0xb8, 7, 0, 0, 0, 0x0f, 0x05]), Some(libc::SYS_poll));
        assert_eq!(number_of(&[0xb8, 0x19, 1, 0, 0, 0x8b, 0x7c, 0x24, 4, 0x0f, 0x05]), Some(libc::SYS_epoll_pwait));
        assert_eq!(number_of(&[0xb8, 0xe6, 0, 0, 0, 0x8b, 0x3c, 0x24, 0x0f, 0x05]), Some(libc::SYS_clock_nanosleep));
    }

    #[test]
    fn other_code_before_a_system_call_gives_none() {
        assert_eq!(number_of(&[0x48, 0x89, 0xf8, 0x0f, 0x05]), None, "mov %rdi,%rax, as in syscall(2)");
        assert_eq!(number_of(&[0xb8, 7, 0, 0, 0, 0x90, 0x90]), None, "no system call");
    }

    /// A ring buffer whose last record is of an overflow in this processor mode, entered from this instruction.
    fn ring_of(mode: u64, rax: i64, entered_from: u64) -> Vec<u64> {
        let mut ring = vec![0; RING_BYTES / 8];
        // Around the end of the page.
        let head = 5 * PAGE as u64 + 8;
        ring[HEAD_OFFSET / 8] = head;
        for (index, word) in
            [9 | mode << 32 | RECORD_BYTES << 48, 0, ABI_64, rax as u64, entered_from].into_iter().enumerate()
        {
            ring[PAGE / 8 + ((head - RECORD_BYTES) as usize / 8 + index) % (PAGE / 8)] = word;
        }
        ring
    }

    const KERNEL: u64 = 1;
    const USER: u64 = 2;
    /// `rax` until a call has a result.
    const INSIDE: i64 = -(libc::ENOSYS as i64);
    const POLL: [u8; 16] = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xb8, 7, 0, 0, 0, 0x0f, 0x05];

    /// `rax`, and how far `rip` moved.
    fn after_restart(code: &[u8], rax: i64, ring: impl Fn(u64) -> Vec<u64>) -> (i64, i64) {
        let end = code.as_ptr() as usize + code.len();
        // SAFETY: an all-zero context is a valid value; it is filled in as an interrupted call leaves it.
        let mut context: libc::ucontext_t = unsafe { core::mem::zeroed() };
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = rax;
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = end as i64;
        let ring = ring(end as u64);
        // SAFETY: a context and a ring buffer of this test's own.
        unsafe {
            if let Some(overflow) = Record::last(ring.as_ptr() as usize) {
                restart_interrupted_call((&raw mut context).cast(), &overflow);
            }
        }
        let registers = context.uc_mcontext.gregs;
        (registers[libc::REG_RAX as usize], registers[libc::REG_RIP as usize] - end as i64)
    }

    #[test]
    fn a_call_that_waits_is_made_again_and_one_that_must_not_be_repeated_is_not() {
        let mut close = POLL;
        close[10] = libc::SYS_close as u8;
        let here = |end| ring_of(KERNEL, INSIDE, end);
        assert_eq!(after_restart(&POLL, INTERRUPTED, here), (libc::SYS_poll, -2));
        assert_eq!(after_restart(&close, INTERRUPTED, here), (INTERRUPTED, 0));
        assert_eq!(after_restart(&POLL, 1, here), (1, 0), "it returned a result");
    }

    #[test]
    fn a_call_that_a_handler_of_the_host_interrupted_returns_eintr() {
        let unchanged = (INTERRUPTED, 0);
        assert_eq!(
            after_restart(&POLL, INTERRUPTED, |_| ring_of(KERNEL, INSIDE, 0x1234)),
            unchanged,
            "in rt_sigreturn"
        );
        let restored = |end| ring_of(KERNEL, INTERRUPTED, end);
        assert_eq!(after_restart(&POLL, INTERRUPTED, restored), unchanged, "there, with the registers restored");
        assert_eq!(after_restart(&POLL, INTERRUPTED, |end| ring_of(USER, INSIDE, end)), unchanged, "in user mode");
        assert_eq!(after_restart(&POLL, INTERRUPTED, |_| vec![0; RING_BYTES / 8]), unchanged, "no record");
    }
}
