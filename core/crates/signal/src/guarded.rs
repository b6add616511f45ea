//! Reads of memory that may not be there: the one door through which capture functions look at the host's structures.
//! A fault inside the instructions below is turned into a failed read by [`on_fault`]; every other fault goes to whoever
//! handled it before us. Nothing is armed before a read and no thread-local is used: only the program counter decides.
//!
//! The host may replace our fault handler at any time (crash reporters do). Until `install` finds us in place again,
//! reads go through the kernel (`process_vm_readv`), or fail where a seccomp filter ends a process for that
//! call ([`forbid_kernel_reads`]). Samples of failed reads show `faulted_read`.

use crate::forward::{current_action, first_word, Forwarded, Predecessors};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.spanprof_guarded,\"ax\",@progbits",
    ".balign 16",
    ".hidden spanprof_guarded_begin",
    ".hidden spanprof_guarded_end",
    ".hidden spanprof_guarded_failed",
    ".hidden spanprof_guarded_read_u64",
    ".hidden spanprof_guarded_copy_80",
    ".hidden spanprof_guarded_copy",
    ".globl spanprof_guarded_begin",
    ".globl spanprof_guarded_end",
    ".globl spanprof_guarded_failed",
    ".globl spanprof_guarded_read_u64",
    ".globl spanprof_guarded_copy_80",
    ".globl spanprof_guarded_copy",
    ".cfi_startproc",
    "spanprof_guarded_begin:",
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
    ".cfi_endproc",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.spanprof_guarded,\"ax\",@progbits",
    ".balign 16",
    ".hidden spanprof_guarded_begin",
    ".hidden spanprof_guarded_end",
    ".hidden spanprof_guarded_failed",
    ".hidden spanprof_guarded_read_u64",
    ".hidden spanprof_guarded_copy_80",
    ".hidden spanprof_guarded_copy",
    ".globl spanprof_guarded_begin",
    ".globl spanprof_guarded_end",
    ".globl spanprof_guarded_failed",
    ".globl spanprof_guarded_read_u64",
    ".globl spanprof_guarded_copy_80",
    ".globl spanprof_guarded_copy",
    ".cfi_startproc",
    "spanprof_guarded_begin:",
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
    ".cfi_endproc",
    ".popsection",
);

/// Two registers: the value, and whether the read failed.
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
static IN_PLACE: AtomicBool = AtomicBool::new(false);
/// Whether `process_vm_readv` must not be called: a seccomp filter would end the process there.
static KERNEL_READS_FORBIDDEN: AtomicBool = AtomicBool::new(false);
static SEGV_BEFORE: Predecessors = Predecessors::new();
static BUS_BEFORE: Predecessors = Predecessors::new();
static RETURN: AtomicUsize = AtomicUsize::new(0);

/// Page zero and its neighbours never hold data; not worth a fault.
const LOWEST_ADDRESS: usize = 4096;

/// Reads eight bytes; no alignment needed. `None` when they cannot be read.
#[inline]
pub fn read_u64(address: usize) -> Option<u64> {
    if address < LOWEST_ADDRESS {
        return None;
    }
    if !is_in_place() {
        let mut bytes = [0u8; 8];
        return read_by_kernel(bytes.as_mut_ptr(), address, 8).then(|| u64::from_ne_bytes(bytes));
    }
    // SAFETY: the load is inside the guarded instructions and the fault handler is in place: a bad address is a failed read.
    let loaded = unsafe { spanprof_guarded_read_u64(address) };
    (loaded.failed == 0).then_some(loaded.value)
}

/// Copies `length` bytes; false when any of them cannot be read (then some bytes of `destination` may be written).
///
/// # Safety
/// `destination` must be valid for writes of `length` bytes and must not overlap the source.
#[inline]
pub unsafe fn copy(destination: *mut u8, source: usize, length: usize) -> bool {
    if source < LOWEST_ADDRESS || source.checked_add(length).is_none() {
        return false;
    }
    if !is_in_place() {
        return read_by_kernel(destination, source, length);
    }
    // SAFETY: the destination is the caller's promise; the source is guarded as in `read_u64`.
    unsafe { spanprof_guarded_copy(destination, source, length).failed == 0 }
}

/// Copies 80 bytes, the size of a frame: all loads before the first store, without a loop.
#[inline]
pub fn copy_80(destination: &mut [u8; 80], source: usize) -> bool {
    if source < LOWEST_ADDRESS {
        return false;
    }
    if !is_in_place() {
        return read_by_kernel(destination.as_mut_ptr(), source, 80);
    }
    // SAFETY: the destination is a borrowed array of 80 bytes; the source is guarded as in `read_u64`.
    unsafe { spanprof_guarded_copy_80(destination.as_mut_ptr(), source).failed == 0 }
}

/// Faults turned into failed reads since the process began.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Foreign faults handed to a handler that was there before us.
pub fn faults_forwarded() -> u64 {
    SEGV_BEFORE.forwarded() + BUS_BEFORE.forwarded()
}

/// Whether reads are direct. False means that each is a system call: capture functions may prefer to give up.
#[inline]
pub fn is_in_place() -> bool {
    IN_PLACE.load(Ordering::Relaxed)
}

/// From here on no read is a system call (`process_vm_readv`): one that the fault handler cannot guard fails.
pub fn forbid_kernel_reads() {
    KERNEL_READS_FORBIDDEN.store(true, Ordering::Relaxed);
}

/// Whether our handler is the one in force for both fault signals; also updates what [`is_in_place`] says.
pub fn check_in_place() -> bool {
    let ours =
        |signal| current_action(signal).is_some_and(|action| action.sa_sigaction == on_fault as *const () as usize);
    let in_place = ours(libc::SIGSEGV) && ours(libc::SIGBUS);
    IN_PLACE.store(in_place, Ordering::Relaxed);
    in_place
}

/// Installs the fault handler, or installs it again over whoever replaced it, who is then forwarded to. Normal threads
/// only, one at a time. False when the kernel refused: reads then stay system calls.
pub fn install() -> bool {
    // No SA_NODEFER would leave the fault signal blocked while a predecessor runs, and a second fault would kill where
    // the predecessor alone would have handled it; `forward` puts the predecessor's own mask in force instead.
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    let handler = on_fault as *const () as usize;
    let installed =
        SEGV_BEFORE.install(libc::SIGSEGV, handler, flags) & BUS_BEFORE.install(libc::SIGBUS, handler, flags);
    let told = current_action(libc::SIGSEGV).and_then(|action| action.sa_restorer);
    RETURN.store(told.map_or(0, |code| code as usize), Ordering::Relaxed);
    installed && check_in_place()
}

/// Where fault handlers return to: what the C library has the kernel put below their context. 0 where it does not tell.
#[inline]
pub fn signal_trampoline() -> usize {
    RETURN.load(Ordering::Relaxed)
}

/// The handler of SIGSEGV and SIGBUS.
///
/// # Safety
/// Called by the kernel only.
unsafe extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    // SAFETY: the kernel passes a ucontext_t to a SA_SIGINFO handler, ours alone until we return.
    let registers = unsafe { &mut *ucontext.cast::<libc::ucontext_t>() };
    let counter = program_counter(registers);
    let begin = spanprof_guarded_begin as *const () as u64;
    let end = spanprof_guarded_end as *const () as u64;
    if *counter >= begin && *counter < end {
        // The guarded functions are leaves without a frame: returning from the fix-up returns to their caller.
        *counter = spanprof_guarded_failed as *const () as u64;
        FAULTS.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the C library keeps errno of this thread at this address for the thread's life.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    crate::walking::tell_fault();
    let before = if signal == libc::SIGBUS { &BUS_BEFORE } else { &SEGV_BEFORE };
    // SAFETY: we are the handler and pass on what the kernel gave.
    let outcome = unsafe { before.forward(signal, info, ucontext) };
    // SAFETY: the kernel passes a siginfo_t.
    let sent = unsafe { (*info).si_code } <= 0;
    // The kernel does not ignore a fault of the thread itself; it kills. So do we.
    if outcome == Forwarded::Default || (outcome == Forwarded::Ignored && !sent) {
        die_by_default(signal, sent);
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// Restores the default action. A real fault happens again on return and kills with the host's own registers; one that
/// somebody sent has to be sent again.
pub(crate) fn die_by_default(signal: libc::c_int, sent: bool) {
    // SAFETY: an all-zero sigaction is SIG_DFL with an empty mask.
    let action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: plain system calls on the current thread; both are async-signal-safe.
    unsafe {
        libc::sigaction(signal, &action, core::ptr::null_mut());
        if sent {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), crate::forward::thread_id(), signal);
        }
    }
}

/// The program counter of the interrupted code.
fn program_counter(context: &mut libc::ucontext_t) -> &mut u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a greg is a signed word that holds the bits of an address.
    return unsafe { &mut *(&raw mut context.uc_mcontext.gregs[libc::REG_RIP as usize]).cast::<u64>() };
    #[cfg(target_arch = "aarch64")]
    return &mut context.uc_mcontext.pc;
}

/// The program counter that a signal interrupted; 0 without a context.
///
/// # Safety
/// `ucontext` is null or the one the kernel gave to the running handler.
pub unsafe fn interrupted_at(ucontext: *mut libc::c_void) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { ucontext.cast::<libc::ucontext_t>().as_mut() } {
        Some(context) => *program_counter(context),
        None => 0,
    }
}

/// Whether the interrupted thread blocks the fault signals: a guarded read that faults would kill it.
///
/// # Safety
/// As for [`interrupted_at`].
pub(crate) unsafe fn blocks_faults(ucontext: *mut libc::c_void) -> bool {
    const FAULTS: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);
    // SAFETY: the caller's promise.
    unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() }.is_some_and(|c| first_word(&c.uc_sigmask) & FAULTS != 0)
}

/// Whether a signal interrupted a system call: the instruction at, or right before, is the one that enters the kernel.
///
/// # Safety
/// As for [`interrupted_at`].
pub unsafe fn is_in_system_call(ucontext: *mut libc::c_void) -> bool {
    // SAFETY: the caller's promise.
    is_at_kernel_entry(unsafe { interrupted_at(ucontext) } as usize)
}

/// `syscall`, or `svc #0`, and its bytes.
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
    // SAFETY: the kernel writes at most `length` bytes to `destination`, which the callers own, and checks the source.
    unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) == length as isize }
}

#[cfg(all(test, not(miri)))] // Reads by the kernel.
mod tests {
    use super::{is_at_kernel_entry, KERNEL_ENTRY};

    #[test]
    fn a_thread_inside_a_system_call_is_one_before_or_behind_the_instruction_that_makes_it() {
        let (entry, bytes) = KERNEL_ENTRY;
        let mut code = [0x90u8; 32];
        code[8..8 + bytes].copy_from_slice(&entry.to_le_bytes()[..bytes]);
        let at = |offset| code.as_ptr() as usize + offset;
        assert!(is_at_kernel_entry(at(8)) && is_at_kernel_entry(at(8 + bytes)));
        assert!(!is_at_kernel_entry(at(7)) && !is_at_kernel_entry(at(16)));
    }
}
