//! Guarded loads: reads of memory that may be unmapped. Capture functions read the host's structures only through
//! this module. `on_fault` turns a fault inside the instructions below into a failed read; it forwards every other
//! fault to the previous handler. No state is set before a read and no thread-local storage is used: only the program
//! counter decides.
//!
//! The host may replace our fault handler at any time, as crash reporters do, and then receives our faults until that is noticed
//! ([`check_if_due`]). So no fault is part of normal operation: addresses that are often unmapped are read through
//! `CheckedMemory`. Until `install` restores the handler, reads use the kernel (`process_vm_readv`). Where a seccomp filter ends
//! a process for that call, reads fail instead ([`forbid_kernel_reads`]). Samples with a failed read show `faulted_read`.

use crate::signals::forward::{current_action, signal_bits, Forwarded, HandlerChain};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

macro_rules! guarded_code {
    ($($line:literal,)+) => {
        core::arch::global_asm!(
            ".pushsection .text.spanprof_guarded,\"ax\",@progbits",
            ".balign 16",
            ".irp name, begin, end, failed, read_u64, copy_80, copy",
            ".hidden spanprof_guarded_\\name",
            ".globl spanprof_guarded_\\name",
            ".endr",
            ".cfi_startproc",
            "spanprof_guarded_begin:",
            $($line,)+
            ".cfi_endproc",
            ".popsection",
        );
    };
}

#[cfg(target_arch = "x86_64")]
guarded_code! {
    "spanprof_guarded_read_u64:", // rdi = source; rax = value, rdx = 0
    "mov rax, [rdi]",
    "xor edx, edx",
    "ret",
    ".balign 16",
    "spanprof_guarded_copy_80:", // rdi = destination, rsi = source
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups xmm4, [rsi + 64]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "movups [rdi + 64], xmm4",
    "xor eax, eax",
    "xor edx, edx",
    "ret",
    ".balign 16",
    "spanprof_guarded_copy:", // rdi = destination, rsi = source, rdx = length
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "xor edx, edx",
    "ret",
    "spanprof_guarded_end:",
    "spanprof_guarded_failed:",
    "xor eax, eax",
    "mov edx, 1",
    "ret",
}

#[cfg(target_arch = "aarch64")]
guarded_code! {
    "spanprof_guarded_read_u64:", // x0 = source; x0 = value, x1 = 0
    "ldr x0, [x0]",
    "mov x1, #0",
    "ret",
    ".balign 16",
    "spanprof_guarded_copy_80:", // x0 = destination, x1 = source
    "ldp q0, q1, [x1]",
    "ldp q2, q3, [x1, #32]",
    "ldr q4, [x1, #64]",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x0, #32]",
    "str q4, [x0, #64]",
    "mov x0, #0",
    "mov x1, #0",
    "ret",
    ".balign 16",
    "spanprof_guarded_copy:", // x0 = destination, x1 = source, x2 = length
    "cmp x2, #8",
    "b.lo 2f",
    "1:",
    "ldr x3, [x1], #8",
    "str x3, [x0], #8",
    "sub x2, x2, #8",
    "cmp x2, #8",
    "b.hs 1b",
    "2:",
    "cbz x2, 4f",
    "3:",
    "ldrb w3, [x1], #1",
    "strb w3, [x0], #1",
    "subs x2, x2, #1",
    "b.ne 3b",
    "4:",
    "mov x0, #0",
    "mov x1, #0",
    "ret",
    "spanprof_guarded_end:",
    "spanprof_guarded_failed:",
    "mov x0, #0",
    "mov x1, #1",
    "ret",
}

/// The result in two registers: the value, and whether the read failed.
#[repr(C)]
struct Loaded {
    value: u64,
    failed: u64,
}

unsafe extern "C" {
    fn spanprof_guarded_begin();
    fn spanprof_guarded_end();
    fn spanprof_guarded_failed();
    fn spanprof_guarded_read_u64(source: usize) -> Loaded;
    fn spanprof_guarded_copy_80(destination: *mut u8, source: usize) -> Loaded;
    fn spanprof_guarded_copy(destination: *mut u8, source: usize, length: usize) -> Loaded;
}

static FAULTS: AtomicU64 = AtomicU64::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Set where a seccomp filter would end the process for `process_vm_readv`.
static KERNEL_READS_FORBIDDEN: AtomicBool = AtomicBool::new(false);
static SEGV_CHAIN: HandlerChain = HandlerChain::new();
static BUS_CHAIN: HandlerChain = HandlerChain::new();

/// Page zero holds no data: rejected without a fault.
const MIN_READABLE_ADDRESS: usize = 4096;

/// Reads eight bytes; no alignment needed. `None` when they cannot be read.
#[inline]
pub fn read_u64(address: usize) -> Option<u64> {
    if address < MIN_READABLE_ADDRESS {
        return None;
    }
    if !is_installed() {
        let mut bytes = [0u8; 8];
        return read_by_kernel(bytes.as_mut_ptr(), address, 8).then(|| u64::from_ne_bytes(bytes));
    }
    // SAFETY: the load is one of the guarded instructions and the fault handler is installed: a bad address is a
    // failed read.
    let loaded = unsafe { spanprof_guarded_read_u64(address) };
    (loaded.failed == 0).then_some(loaded.value)
}

/// Reads eight bytes at an address that may be any number, without a fault: by a system call. `None` when they cannot be read.
pub fn read_u64_of_unknown(address: usize) -> Option<u64> {
    let mut bytes = [0u8; 8];
    read_by_kernel(bytes.as_mut_ptr(), address, 8).then(|| u64::from_ne_bytes(bytes))
}

/// Fills `destination` from an address that may be any number, without a fault: by a system call. Where that is not allowed, by
/// guarded loads. False when any byte cannot be read.
pub fn copy_of_unknown(destination: &mut [u8], source: usize) -> bool {
    if read_by_kernel(destination.as_mut_ptr(), source, destination.len()) {
        return true;
    }
    let (mut copied, word) = ([0; 8], 0u64);
    let is_allowed = read_by_kernel(copied.as_mut_ptr(), (&raw const word) as usize, copied.len());
    // SAFETY: the destination is a borrowed slice of this length.
    !is_allowed && is_installed() && unsafe { copy(destination.as_mut_ptr(), source, destination.len()) }
}

/// Copies `length` bytes. False when any byte cannot be read; part of `destination` may then be written.
///
/// # Safety
/// `destination` must be valid for writes of `length` bytes and must not overlap the source.
#[inline]
pub unsafe fn copy(destination: *mut u8, source: usize, length: usize) -> bool {
    if source < MIN_READABLE_ADDRESS || source.checked_add(length).is_none() {
        return false;
    }
    if !is_installed() {
        return read_by_kernel(destination, source, length);
    }
    // SAFETY: `destination` is valid by the caller's contract; the loads are guarded: a bad source address is a failed read.
    unsafe { spanprof_guarded_copy(destination, source, length).failed == 0 }
}

/// Copies 80 bytes, the size of a frame: all loads before the first store, no loop.
#[inline]
pub fn copy_80(destination: &mut [u8; 80], source: usize) -> bool {
    if source < MIN_READABLE_ADDRESS {
        return false;
    }
    if !is_installed() {
        return read_by_kernel(destination.as_mut_ptr(), source, 80);
    }
    // SAFETY: the destination is a borrowed array of 80 bytes; the loads are guarded: a bad source address is a failed read.
    unsafe { spanprof_guarded_copy_80(destination.as_mut_ptr(), source).failed == 0 }
}

/// Whether eight bytes can be read: asks the kernel, by one system call that no fault can end.
pub fn is_readable(address: usize) -> bool {
    const INVALID: libc::c_int = -1;
    let none = core::ptr::null_mut::<u64>();
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life. The kernel copies the
    // set before it rejects the invalid operation (`rt_sigprocmask` in kernel/signal.c, Linux 2.6-6.18), and changes nothing.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let rejected = libc::syscall(libc::SYS_rt_sigprocmask, INVALID, address, none, 8usize) != 0;
        let is_readable = rejected && *errno == libc::EINVAL;
        *errno = saved;
        is_readable
    }
}

/// Faults turned into failed reads since the process began.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Foreign faults that were forwarded to a previous handler.
pub fn faults_forwarded() -> u64 {
    SEGV_CHAIN.forwarded() + BUS_CHAIN.forwarded()
}

/// Whether reads are direct loads. False means that each read is a system call, and capture functions may give up.
#[inline]
pub fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// Disables reads by system call (`process_vm_readv`): from now on a read fails while the fault handler is not
/// installed.
pub fn forbid_kernel_reads() {
    KERNEL_READS_FORBIDDEN.store(true, Ordering::Relaxed);
}

/// Whether our handler is installed for both fault signals. Updates [`is_installed`].
pub fn check_installed() -> bool {
    let ours =
        |signal| current_action(signal).is_some_and(|action| action.sa_sigaction == on_fault as *const () as usize);
    let installed = ours(libc::SIGSEGV) && ours(libc::SIGBUS);
    INSTALLED.store(installed, Ordering::Relaxed);
    installed
}

/// Maximum time for which ticks take an installed handler for granted.
const CHECK_INTERVAL_NS: u64 = 100_000_000;
static CHECK_AT_NS: AtomicU64 = AtomicU64::new(0);

/// Notices that another handler replaced ours, at most once in 100 ms. Called by ticks of the clock, in handlers.
#[inline]
pub fn check_if_due(now_ns: u64) {
    let due_ns = CHECK_AT_NS.load(Ordering::Relaxed);
    let next_ns = now_ns.saturating_add(CHECK_INTERVAL_NS);
    let is_due = now_ns >= due_ns && is_installed();
    if is_due && CHECK_AT_NS.compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        check_installed();
    }
}

/// Installs the fault handler, or reinstalls it over a handler that replaced it and chains to that one. Normal
/// threads only, one at a time. False when the kernel refuses; reads then remain system calls.
pub fn install() -> bool {
    // Without SA_NODEFER the fault signal would stay blocked while a previous handler runs. A second fault would then
    // end the process, although the previous handler alone would have handled it. `forward` applies the previous
    // handler's own mask instead.
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    let handler = on_fault as *const () as usize;
    let installed = SEGV_CHAIN.install(libc::SIGSEGV, handler, flags) & BUS_CHAIN.install(libc::SIGBUS, handler, flags);
    installed && check_installed()
}

/// The handler of SIGSEGV and SIGBUS.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    // SAFETY: the kernel passes a ucontext_t to a SA_SIGINFO handler, which has exclusive access until it returns.
    let registers = unsafe { &mut *ucontext.cast::<libc::ucontext_t>() };
    let counter = program_counter(registers);
    let begin = spanprof_guarded_begin as *const () as u64;
    let end = spanprof_guarded_end as *const () as u64;
    if *counter >= begin && *counter < end {
        // The guarded functions are leaves without a frame: the fix-up returns to their caller.
        *counter = spanprof_guarded_failed as *const () as u64;
        FAULTS.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
    let saved = unsafe { *errno };
    crate::walk::walk_fault::report_fault();
    let chain = if signal == libc::SIGBUS { &BUS_CHAIN } else { &SEGV_CHAIN };
    // SAFETY: called inside the handler, with the kernel's arguments.
    let outcome = unsafe { chain.forward(signal, info, ucontext) };
    // SAFETY: the kernel passes a siginfo_t.
    let sent = unsafe { (*info).si_code } <= 0;
    // The kernel does not ignore a synchronous fault: it ends the process, and so does this handler.
    if outcome == Forwarded::Default || (outcome == Forwarded::Ignored && !sent) {
        apply_default_action(signal, sent);
    }
    // SAFETY: errno of this thread, at an address that the C library keeps valid for the thread's life.
    unsafe { *errno = saved };
}

/// Restores the default action. A synchronous fault recurs on return and ends the process with the host's own
/// registers; a signal that was sent must be sent again.
pub(crate) fn apply_default_action(signal: libc::c_int, sent: bool) {
    // SAFETY: an all-zero sigaction is SIG_DFL with an empty mask.
    let action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: two system calls that access no memory but `action`; both are async-signal-safe.
    unsafe {
        libc::sigaction(signal, &action, core::ptr::null_mut());
        if sent {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), crate::signals::forward::thread_id(), signal);
        }
    }
}

/// The program counter of the interrupted code.
fn program_counter(context: &mut libc::ucontext_t) -> &mut u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a greg is a signed word with the bits of an address.
    return unsafe { &mut *(&raw mut context.uc_mcontext.gregs[libc::REG_RIP as usize]).cast::<u64>() };
    #[cfg(target_arch = "aarch64")]
    return &mut context.uc_mcontext.pc;
}

/// The program counter at which a signal interrupted the thread; 0 without a context.
///
/// # Safety
/// `ucontext` is null or the kernel's argument to the running handler.
pub unsafe fn interrupted_pc(ucontext: *mut libc::c_void) -> u64 {
    // SAFETY: the caller's contract: null or a valid context.
    match unsafe { ucontext.cast::<libc::ucontext_t>().as_mut() } {
        Some(context) => *program_counter(context),
        None => 0,
    }
}

/// Whether the interrupted thread blocks the fault signals: a guarded read that faults would end the process.
///
/// # Safety
/// As for [`interrupted_pc`].
pub(crate) unsafe fn blocks_faults(ucontext: *mut libc::c_void) -> bool {
    const FAULTS: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);
    // SAFETY: the caller's contract: null or a valid context.
    unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() }.is_some_and(|c| signal_bits(&c.uc_sigmask) & FAULTS != 0)
}

/// Whether a signal interrupted a system call: the instruction at the program counter, or the one before it, enters
/// the kernel.
///
/// # Safety
/// As for [`interrupted_pc`].
pub unsafe fn is_in_system_call(ucontext: *mut libc::c_void) -> bool {
    // SAFETY: the caller's contract.
    is_at_kernel_entry(unsafe { interrupted_pc(ucontext) } as usize)
}

/// Whether the interrupted code is told that a signal ended its system call: EINTR is in the register of the result.
///
/// # Safety
/// As for [`interrupted_pc`].
pub unsafe fn reports_interruption(ucontext: *mut libc::c_void) -> bool {
    // SAFETY: the caller's contract: null or a valid context.
    unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() }.is_some_and(|context| {
        #[cfg(target_arch = "x86_64")]
        let result = context.uc_mcontext.gregs[libc::REG_RAX as usize];
        #[cfg(target_arch = "aarch64")]
        let result = context.uc_mcontext.regs[0] as i64;
        result == -i64::from(libc::EINTR)
    })
}

/// The encoding of `syscall` or `svc #0`, and its length in bytes.
const KERNEL_ENTRY: (u64, usize) = if cfg!(target_arch = "x86_64") { (0x050f, 2) } else { (0xd400_0001, 4) };

fn is_at_kernel_entry(pc: usize) -> bool {
    let (entry, bytes) = KERNEL_ENTRY;
    let enters = |address: usize| read_u64(address).is_some_and(|word| word & ((1 << (bytes * 8)) - 1) == entry);
    enters(pc) || enters(pc.wrapping_sub(bytes))
}

fn read_by_kernel(destination: *mut u8, source: usize, length: usize) -> bool {
    if KERNEL_READS_FORBIDDEN.load(Ordering::Relaxed) {
        return false;
    }
    let local = libc::iovec { iov_base: destination.cast(), iov_len: length };
    let remote = libc::iovec { iov_base: source as *mut libc::c_void, iov_len: length };
    // SAFETY: the kernel writes at most `length` bytes to `destination`, which the callers provide, and validates the
    // source.
    unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) == length as isize }
}

#[cfg(all(test, not(miri)))] // Reads by the kernel.
mod tests {
    use super::{is_at_kernel_entry, KERNEL_ENTRY};

    #[test]
    fn a_pc_at_or_after_the_syscall_instruction_is_inside_a_system_call() {
        let (entry, bytes) = KERNEL_ENTRY;
        let mut code = [0x90u8; 32];
        code[8..8 + bytes].copy_from_slice(&entry.to_le_bytes()[..bytes]);
        let at = |offset| code.as_ptr() as usize + offset;
        assert!(is_at_kernel_entry(at(8)) && is_at_kernel_entry(at(8 + bytes)));
        assert!(!is_at_kernel_entry(at(7)) && !is_at_kernel_entry(at(16)));
    }
}
