//! Reads clocks and arms timers and perf events, for the handler. Each function is async-signal-safe by POSIX or a
//! bare system call. Not here: which clock is armed, and when (`slot_clock`). `spanprof_os` creates and deletes clocks.
//!
//! A preloaded library may replace `clock_gettime`. libfaketime 0.9.10 alters the CPU clocks of other threads too, while
//! timers use the kernel's, and locks a mutex, which is not async-signal-safe (`fake_clock_gettime` in
//! src/libfaketime.c). Clocks are therefore read by the C library's own function or, until `spanprof_os` has set it, by the
//! system call.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Perf accepts smaller values, but the kernel never fires faster.
const MIN_PERF_INTERVAL_NS: u64 = 10_000;
const PERF_EVENT_IOC_REFRESH: u64 = 0x2402;
const PERF_EVENT_IOC_PERIOD: u64 = 0x4008_2404;

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    read_clock(clock).unwrap_or(0)
}

/// Nanoseconds of a clock; `None` when it does not exist. May change errno.
pub fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to a local; async-signal-safe by POSIX.
    let outcome = unsafe { read_timespec(clock, &mut time) };
    (outcome == 0).then(|| (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

/// As `clock_gettime`, without a replacement of it.
///
/// # Safety
/// As `clock_gettime`: `time` is writable, or the call fails.
pub unsafe extern "C" fn read_timespec(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let function = CLOCK_GETTIME.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: the kernel writes one timespec, or rejects the pointer.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as libc::c_int;
    }
    // SAFETY: `set_clock_gettime` was given the C library's function, which has this type and is never unloaded.
    let function: ClockGettime = unsafe { core::mem::transmute(function) };
    // SAFETY: the caller's contract.
    unsafe { function(clock, time) }
}

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

static CLOCK_GETTIME: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the C library's own `clock_gettime`. It reads the vDSO: about 25 ns per clock that needs no system call.
///
/// # Safety
/// `function` is that function, and stays loaded.
pub unsafe fn set_clock_gettime(function: *mut c_void) {
    CLOCK_GETTIME.store(function, Ordering::Relaxed);
}

/// Defines `clock_gettime` inside a binding's library, where `std::time` then reads clocks as [`read_clock`] does. The
/// kernel ends timed waits by its own clock, so that they end too early or never with an altered one. The symbol is
/// hidden: no other library uses it.
#[macro_export]
macro_rules! define_clock_gettime {
    () => {
        #[cfg(target_arch = "x86_64")]
        $crate::define_clock_gettime!("jmp {function}");
        #[cfg(target_arch = "aarch64")]
        $crate::define_clock_gettime!("b {function}");
    };
    ($jump:literal) => {
        core::arch::global_asm!(
            ".pushsection .text.spanprof_clock_gettime,\"ax\",@progbits",
            ".balign 16",
            ".globl clock_gettime",
            ".hidden clock_gettime",
            ".type clock_gettime, @function",
            "clock_gettime:",
            $jump,
            ".size clock_gettime, . - clock_gettime",
            ".popsection",
            function = sym $crate::arm::read_timespec,
        );
    };
}

/// Whom the signal of a timer is for.
#[derive(Clone, Copy)]
pub enum SignalTarget {
    /// The thread with this id.
    Thread(u32),
    /// Any thread of the process.
    Process,
}

/// The kernel's sigevent of a timer.
#[repr(C)]
struct SignalEvent {
    value: usize,
    signal: i32,
    notify: i32,
    thread_id: i32,
    _rest: [i32; 11],
}

/// Creates a POSIX timer that sends `signal` with `value`, by the system call, since the C library's wrappers differ. Returns
/// the kernel's id, or errno.
pub fn create_timer(
    clock: libc::clockid_t,
    target: SignalTarget,
    signal: libc::c_int,
    value: usize,
) -> Result<u32, i32> {
    let (notify, thread_id) = match target {
        SignalTarget::Thread(id) => (libc::SIGEV_THREAD_ID, id as i32),
        SignalTarget::Process => (libc::SIGEV_SIGNAL, 0),
    };
    let event = SignalEvent { value, signal, notify, thread_id, _rest: [0; 11] };
    let mut id: libc::c_int = 0;
    // SAFETY: the kernel reads 64 bytes of `event` and writes one int.
    match errno_of(unsafe { libc::syscall(libc::SYS_timer_create, clock, &raw const event, &raw mut id) }) {
        0 => Ok(id as u32),
        errno => Err(errno),
    }
}

/// Deletes a timer. A timer that no longer exists is no error.
pub fn delete_timer(id: u32) {
    // SAFETY: the kernel rejects an invalid id.
    unsafe { libc::syscall(libc::SYS_timer_delete, id) };
}

/// Arms a POSIX timer once, at an absolute time of its clock. Returns 0 or errno.
pub fn arm_timer(id: u32, at_ns: u64) -> i32 {
    // An all-zero value would disarm the timer.
    let at_ns = at_ns.max(1);
    let (seconds, ns) = ((at_ns / 1_000_000_000) as _, (at_ns % 1_000_000_000) as libc::c_long);
    let setting = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: seconds, tv_nsec: ns },
    };
    let old = core::ptr::null_mut::<libc::itimerspec>();
    // SAFETY: the kernel reads `setting`; it rejects an id that is not a timer of this process.
    errno_of(unsafe { libc::syscall(libc::SYS_timer_settime, id, libc::TIMER_ABSTIME, &raw const setting, old) })
}

/// Sets the interval until the next overflow of a perf event. Returns 0 or errno.
pub(crate) fn set_perf_interval(descriptor: u32, interval_ns: u64) -> i32 {
    let interval = interval_ns.max(MIN_PERF_INTERVAL_NS);
    control(descriptor, PERF_EVENT_IOC_PERIOD, &raw const interval as usize)
}

/// Allows a perf event `overflows` further overflows, and enables it. The kernel disables the event at the last one
/// (`event_limit` in kernel/events/core.c). Returns 0 or errno.
pub(crate) fn allow_perf_overflows(descriptor: u32, overflows: u64) -> i32 {
    control(descriptor, PERF_EVENT_IOC_REFRESH, overflows as usize)
}

fn control(descriptor: u32, command: u64, argument: usize) -> i32 {
    // SAFETY: PERIOD reads eight bytes of a local; the other commands take a number. The descriptor is closed only
    // while no handler is in its slot.
    errno_of(unsafe { libc::syscall(libc::SYS_ioctl, descriptor, command, argument) })
}

fn errno_of(returned: libc::c_long) -> i32 {
    if returned == 0 {
        return 0;
    }
    // SAFETY: errno of this thread, set by the failed call.
    unsafe { *libc::__errno_location() }
}
