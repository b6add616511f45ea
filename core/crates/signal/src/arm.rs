//! Reads two clocks and arms timers and perf events, for the handler. Each function is async-signal-safe by POSIX or a
//! bare system call. Not here: which clock is armed, and when (`slot_clock`). `sys` creates and deletes clocks.

/// Perf accepts smaller values, but the kernel never fires faster.
const MIN_PERF_INTERVAL_NS: u64 = 10_000;
const PERF_EVENT_IOC_REFRESH: u64 = 0x2402;
const PERF_EVENT_IOC_PERIOD: u64 = 0x4008_2404;

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CLOCK_MONOTONIC.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to a local; async-signal-safe by POSIX.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
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
