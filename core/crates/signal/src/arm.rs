//! The system calls that a handler makes: read two clocks, arm its own clock. Each is on the list of
//! async-signal-safe calls or a bare system call. Creating and deleting clocks is `sys`.

use crate::slot::Ticker;

/// Perf refuses nothing below, but the kernel never fires faster.
const SHORTEST_PERF_INTERVAL_NS: u64 = 10_000;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;
const PERF_EVENT_IOC_DISABLE: u64 = 0x2401;
const PERF_EVENT_IOC_REFRESH: u64 = 0x2402;
const PERF_EVENT_IOC_PERIOD: u64 = 0x4008_2404;

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CLOCK_MONOTONIC.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to a local; async-signal-safe by POSIX.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Arms `ticker` once, for the moment when its thread's CPU clock, now at `cpu_ns`, shows `due_cpu_ns`. Zero or errno.
pub fn arm(ticker: Ticker, cpu_ns: u64, due_cpu_ns: u64) -> i32 {
    match ticker {
        Ticker::None => 0,
        Ticker::Timer(id) => arm_timer(id, due_cpu_ns, 0),
        Ticker::Perf(descriptor) => arm_perf(descriptor, 0, due_cpu_ns.saturating_sub(cpu_ns), Perf::Once),
    }
}

/// Arms a POSIX timer at an absolute time of its clock: once if `interval_ns` is 0, else at every such interval from then
/// on. Zero or errno.
pub fn arm_timer(id: u32, at_ns: u64, interval_ns: u64) -> i32 {
    let time =
        |ns: u64| libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as libc::c_long };
    // All zero would disarm.
    let setting = libc::itimerspec { it_interval: time(interval_ns), it_value: time(at_ns.max(1)) };
    let old = core::ptr::null_mut::<libc::itimerspec>();
    // SAFETY: the kernel reads `setting`; an id that is no timer of ours any more is refused.
    outcome(unsafe { libc::syscall(libc::SYS_timer_settime, id, libc::TIMER_ABSTIME, &raw const setting, old) })
}

/// What a perf event does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Perf {
    /// It stands still: one overflow after the interval, then it stands still again.
    Once,
    /// It stands still: overflows at every interval from now on.
    Run,
    /// It runs: overflows at every interval from now on.
    RunOn,
    /// It runs: one overflow after the interval, then it stands still.
    Stop,
}

/// Arms the calling thread's own perf event, whose signal is being handled. Zero or errno.
pub(crate) fn arm_perf(descriptor: u32, signal: libc::c_int, interval_ns: u64, what: Perf) -> i32 {
    let interval = interval_ns.max(SHORTEST_PERF_INTERVAL_NS);
    if what == Perf::Stop {
        control(descriptor, PERF_EVENT_IOC_DISABLE, 0);
        // An overflow that came meanwhile has its signal waiting: that tick arms. REFRESH adds to what is allowed already,
        // so that arming twice would let two overflows come for each tick from then on.
        if is_pending(signal) {
            return 0;
        }
    }
    let failed = control(descriptor, PERF_EVENT_IOC_PERIOD, &raw const interval as usize);
    match what {
        _ if failed != 0 => failed,
        Perf::Once | Perf::Stop => control(descriptor, PERF_EVENT_IOC_REFRESH, 1),
        Perf::Run => control(descriptor, PERF_EVENT_IOC_ENABLE, 0),
        Perf::RunOn => 0,
    }
}

/// Whether a signal waits for the calling thread, which blocks it.
fn is_pending(signal: libc::c_int) -> bool {
    let mut set = 0u64;
    // SAFETY: the kernel writes eight bytes to a local.
    let known = unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, 8usize) } == 0;
    known && signal > 0 && set >> (signal - 1) & 1 != 0
}

fn control(descriptor: u32, command: u64, argument: usize) -> i32 {
    // SAFETY: PERIOD reads eight bytes of a local, the others take a number; the descriptor is closed only while its slot
    // is in no handler.
    outcome(unsafe { libc::syscall(libc::SYS_ioctl, descriptor, command, argument) })
}

fn outcome(returned: libc::c_long) -> i32 {
    if returned == 0 {
        return 0;
    }
    // SAFETY: errno of this thread, just set.
    unsafe { *libc::__errno_location() }
}
