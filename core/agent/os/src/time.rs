//! Reads clocks: monotonic, wall, process CPU and thread CPU; and the rate of the kernel tick. Not here: timers
//! (`timer`, `perf`). Any thread may call these.

use spanprof_signal::arm::{read_clock as read, set_clock_gettime};

/// Finds the C library's own `clock_gettime`, which a preloaded library does not replace. Until then, and with another C
/// library, each read is a system call.
pub fn load_clock_gettime() {
    // SAFETY: RTLD_NOLOAD loads nothing; the name ends with NUL.
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return;
    }
    // SAFETY: the handle is the loader's; a search by handle does not begin with preloaded libraries.
    let function = unsafe { libc::dlsym(library, c"clock_gettime".as_ptr()) };
    // SAFETY: null, or the function of the C library, which is never unloaded.
    unsafe { set_clock_gettime(function) };
}

/// CLOCK_MONOTONIC: the time of every raw sample.
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Nanoseconds since 1970; may jump.
pub fn unix_ns() -> u64 {
    read(libc::CLOCK_REALTIME).unwrap_or(0)
}

/// CPU time of all threads of the process, ended ones included.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of the calling thread since its birth.
pub fn current_thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of a thread of this process; `None` when it does not exist.
pub fn thread_cpu_ns(thread_id: u32) -> Option<u64> {
    read(thread_cpu_clock(thread_id))
}

/// The kernel's id of a thread's CPU clock: complement of the thread id, per thread (4), scheduler clock (2).
pub(crate) fn thread_cpu_clock(thread_id: u32) -> libc::clockid_t {
    (!(thread_id as libc::clockid_t) << 3) | 6
}

/// The rate at which the kernel checks CPU timers: its tick, from the resolution of the coarse clock.
pub fn kernel_tick_hz() -> u32 {
    let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to a local.
    let outcome = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut step) };
    if outcome != 0 || step.tv_sec != 0 || step.tv_nsec <= 0 {
        return 100;
    }
    // 300 Hz reads as 3,333,333 ns: rounds to the nearest.
    ((1_000_000_000 + step.tv_nsec / 2) / step.tv_nsec) as u32
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static ADDED_SECONDS: Cell<i64> = const { Cell::new(0) };
    }

    /// Replaces the C library's function in this test binary, as a preloaded library does.
    ///
    /// # Safety
    /// `time` is writable, or the call fails: the contract of the C library's `clock_gettime`.
    #[no_mangle]
    unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
        // SAFETY: the caller's contract.
        let outcome = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        if outcome == 0 {
            // SAFETY: the kernel has just written it.
            unsafe { (*time).tv_sec += ADDED_SECONDS.get() };
        }
        outcome as libc::c_int
    }

    #[test]
    fn a_replaced_clock_gettime_changes_no_clock_of_the_profiler() {
        let read = || {
            let thread_ns = thread_cpu_ns(super::super::thread_id()).expect("this thread exists");
            [thread_ns, current_thread_cpu_ns(), process_cpu_ns(), monotonic_ns(), unix_ns()]
        };
        for is_loaded in [false, true] {
            if is_loaded {
                load_clock_gettime();
            }
            let before = read();
            for days in [-400, 400] {
                ADDED_SECONDS.set(days * 86_400);
                let (replaced, altered) = (std::time::SystemTime::now(), read());
                ADDED_SECONDS.set(0);
                let shift = replaced
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap()
                    .as_secs()
                    .abs_diff(before[4] / 1_000_000_000);
                assert!(shift > 399 * 86_400, "the function is not replaced: {shift} s");
                for (before, altered) in before.into_iter().zip(altered) {
                    assert!(
                        altered >= before && altered - before < 86_400_000_000_000,
                        "{before} before, then {altered}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_thread_clock_by_id_is_the_calling_threads_own_clock() {
        let before = current_thread_cpu_ns();
        let by_id = thread_cpu_ns(super::super::thread_id()).expect("this thread exists");
        let after = current_thread_cpu_ns();
        assert!(before <= by_id && by_id <= after, "{before} <= {by_id} <= {after}");
    }

    #[test]
    fn the_process_clock_is_never_behind_one_of_its_threads() {
        let thread = current_thread_cpu_ns();
        assert!(process_cpu_ns() >= thread);
    }

    #[test]
    fn a_thread_that_does_not_exist_has_no_clock() {
        assert_eq!(thread_cpu_ns(0x3fff_fff0), None);
    }

    #[test]
    fn the_kernel_tick_is_a_rate_that_kernels_are_built_with() {
        assert!([100, 250, 300, 1000].contains(&kernel_tick_hz()), "{} Hz", kernel_tick_hz());
    }
}
