//! Creates and deletes POSIX timers on CPU clocks, by bare system calls, since the C library's wrappers differ.
//! Handlers arm them too: arming is in `spanprof_signal::arm`.

use super::system_calls::{self, SystemCall};
use super::time::thread_cpu_clock;

/// The kernel's sigevent of a timer.
#[repr(C)]
struct SignalEvent {
    value: usize,
    signal: i32,
    notify: i32,
    thread_id: i32,
    _rest: [i32; 11],
}

/// Creates a timer on the CPU clock of `thread_id` whose signal goes to that thread with `value`. Returns the kernel's
/// id, or errno.
pub(super) fn create_for_thread(thread_id: u32, signal: libc::c_int, value: usize) -> Result<u32, i32> {
    create(thread_cpu_clock(thread_id), thread_id, signal, value)
}

/// As [`create_for_thread`], on the CPU clock of the process.
pub(super) fn create_for_process(thread_id: u32, signal: libc::c_int, value: usize) -> Result<u32, i32> {
    create(libc::CLOCK_PROCESS_CPUTIME_ID, thread_id, signal, value)
}

fn create(clock: libc::clockid_t, thread_id: u32, signal: libc::c_int, value: usize) -> Result<u32, i32> {
    let event =
        SignalEvent { value, signal, notify: libc::SIGEV_THREAD_ID, thread_id: thread_id as i32, _rest: [0; 11] };
    create_with(clock, event)
}

fn create_with(clock: libc::clockid_t, event: SignalEvent) -> Result<u32, i32> {
    if !system_calls::may_use(SystemCall::TimerCreate) {
        return Err(libc::ENOSYS);
    }
    let mut id: libc::c_int = 0;
    // SAFETY: the kernel reads 64 bytes of `event` and writes one int.
    let outcome = unsafe { libc::syscall(libc::SYS_timer_create, clock, &raw const event, &raw mut id) };
    if outcome == 0 {
        Ok(id as u32)
    } else {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
    }
}

/// Creates a timer on the monotonic clock that sends `signal` to the process.
pub(super) fn create_for_signal(signal: libc::c_int) -> Result<u32, i32> {
    create_with(
        libc::CLOCK_MONOTONIC,
        SignalEvent { value: 0, signal, notify: libc::SIGEV_SIGNAL, thread_id: 0, _rest: [0; 11] },
    )
}

/// Arms a timer once, `delay_ns` from now. Async-signal-safe.
pub(super) fn arm_once(id: u32, delay_ns: u64) -> bool {
    let value =
        libc::timespec { tv_sec: (delay_ns / 1_000_000_000) as i64, tv_nsec: (delay_ns % 1_000_000_000) as i64 };
    let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    // SAFETY: the kernel reads one itimerspec; it rejects an invalid id.
    unsafe { libc::syscall(libc::SYS_timer_settime, id, 0, &raw const once, std::ptr::null_mut::<u8>()) == 0 }
}

/// Whether the kernel permits timers on CPU clocks; the error gives the reason.
pub(super) fn probe(signal: libc::c_int) -> Result<(), String> {
    if !system_calls::may_use(SystemCall::TimerCreate) {
        return Err("timer_create: forbidden by the seccomp filter, which ends the process".into());
    }
    let made = create_for_thread(super::thread_id(), signal, 0);
    made.map(delete).map_err(|errno| format!("timer_create: {}", std::io::Error::from_raw_os_error(errno)))
}

/// Deletes a timer. A timer that no longer exists is no error.
pub(super) fn delete(id: u32) {
    // SAFETY: the kernel rejects an invalid id.
    unsafe { libc::syscall(libc::SYS_timer_delete, id) };
}
