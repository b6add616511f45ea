//! POSIX timers where the seccomp filter allows them. The calls are in `spanprof_signal::arm`: handlers make them too.

use crate::system_calls::{self, SystemCall};
use crate::time::thread_cpu_clock;
use spanprof_signal::arm::{self, SignalTarget};

/// Creates a timer on the CPU clock of `thread_id` whose signal goes to that thread with `value`. Returns the kernel's
/// id, or errno.
pub(crate) fn create_for_thread(thread_id: u32, signal: libc::c_int, value: usize) -> Result<u32, i32> {
    create(thread_cpu_clock(thread_id), SignalTarget::Thread(thread_id), signal, value)
}

/// As [`create_for_thread`], on the CPU clock of the process.
pub(crate) fn create_for_process(thread_id: u32, signal: libc::c_int, value: usize) -> Result<u32, i32> {
    create(libc::CLOCK_PROCESS_CPUTIME_ID, SignalTarget::Thread(thread_id), signal, value)
}

/// Creates a timer on the monotonic clock that sends `signal` to the process.
pub(crate) fn create_for_signal(signal: libc::c_int) -> Result<u32, i32> {
    create(libc::CLOCK_MONOTONIC, SignalTarget::Process, signal, 0)
}

fn create(clock: libc::clockid_t, target: SignalTarget, signal: libc::c_int, value: usize) -> Result<u32, i32> {
    if !system_calls::may_use(SystemCall::TimerCreate) {
        return Err(libc::ENOSYS);
    }
    arm::create_timer(clock, target, signal, value)
}

/// Arms a timer of the monotonic clock once, `delay_ns` from now. Async-signal-safe.
pub(crate) fn arm_once(id: u32, delay_ns: u64) -> bool {
    arm::arm_timer(id, arm::monotonic_ns() + delay_ns) == 0
}

/// Whether the kernel permits timers on CPU clocks; the error gives the reason.
pub(crate) fn probe(signal: libc::c_int) -> Result<(), String> {
    if !system_calls::may_use(SystemCall::TimerCreate) {
        return Err("timer_create: forbidden by the seccomp filter, which ends the process".into());
    }
    let made = create_for_thread(crate::threads::listing::thread_id(), signal, 0);
    made.map(arm::delete_timer).map_err(|errno| format!("timer_create: {}", std::io::Error::from_raw_os_error(errno)))
}
