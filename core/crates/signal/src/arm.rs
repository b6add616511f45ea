//! Reads two clocks and arms the thread's own clock, for the handler. Each function is async-signal-safe by POSIX or a
//! bare system call. `sys` creates and deletes clocks.

use crate::slot::Ticker;

/// Perf accepts smaller values, but the kernel never fires faster.
const MIN_PERF_INTERVAL_NS: u64 = 10_000;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;
const PERF_EVENT_IOC_DISABLE: u64 = 0x2401;
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

/// Arms `ticker` once, for CPU time `due_cpu_ns` of its thread, whose CPU clock now reads `cpu_ns`. Returns 0 or
/// errno.
pub fn arm(ticker: Ticker, cpu_ns: u64, due_cpu_ns: u64) -> i32 {
    match ticker {
        Ticker::None => 0,
        Ticker::Timer(id) => arm_timer(id, due_cpu_ns, 0),
        Ticker::Perf(descriptor) => arm_perf(descriptor, 0, due_cpu_ns.saturating_sub(cpu_ns), PerfArming::OneShot),
    }
}

/// Arms a POSIX timer at an absolute time of its clock: once if `interval_ns` is 0, else periodically from then on.
/// Returns 0 or errno.
pub fn arm_timer(id: u32, at_ns: u64, interval_ns: u64) -> i32 {
    let time =
        |ns: u64| libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as libc::c_long };
    // An all-zero value would disarm the timer.
    let setting = libc::itimerspec { it_interval: time(interval_ns), it_value: time(at_ns.max(1)) };
    let old = core::ptr::null_mut::<libc::itimerspec>();
    // SAFETY: the kernel reads `setting`; it rejects an id that is not a timer of this process.
    errno_of(unsafe { libc::syscall(libc::SYS_timer_settime, id, libc::TIMER_ABSTIME, &raw const setting, old) })
}

/// How to arm a perf event after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerfArming {
    /// Disabled event: one overflow after the interval, then disabled again.
    OneShot,
    /// Disabled event: starts to run free, with an overflow at every interval.
    StartFreeRunning,
    /// Free-running event: continues with the new interval.
    KeepFreeRunning,
    /// Free-running event: one overflow after the interval, then disabled.
    StopThenOneShot,
}

/// Arms the calling thread's own perf event, whose signal is being handled. Returns 0 or errno.
pub(crate) fn arm_perf(descriptor: u32, signal: libc::c_int, interval_ns: u64, arming: PerfArming) -> i32 {
    let interval = interval_ns.max(MIN_PERF_INTERVAL_NS);
    if arming == PerfArming::StopThenOneShot {
        control(descriptor, PERF_EVENT_IOC_DISABLE, 0);
        // An overflow that occurred before the disable left its signal pending: that tick arms the event. REFRESH
        // adds to the allowed overflows, so arming twice would permit two overflows per tick from then on.
        if is_pending(signal) {
            return 0;
        }
    }
    let error = control(descriptor, PERF_EVENT_IOC_PERIOD, &raw const interval as usize);
    match arming {
        _ if error != 0 => error,
        PerfArming::OneShot | PerfArming::StopThenOneShot => control(descriptor, PERF_EVENT_IOC_REFRESH, 1),
        PerfArming::StartFreeRunning => control(descriptor, PERF_EVENT_IOC_ENABLE, 0),
        PerfArming::KeepFreeRunning => 0,
    }
}

/// Whether a blocked signal is pending for the calling thread.
fn is_pending(signal: libc::c_int) -> bool {
    let mut set = 0u64;
    // SAFETY: the kernel writes eight bytes to a local.
    let succeeded = unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, 8usize) } == 0;
    succeeded && signal > 0 && set >> (signal - 1) & 1 != 0
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
