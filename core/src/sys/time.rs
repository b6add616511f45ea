//! Reads clocks: monotonic, wall, process CPU and thread CPU; and the rate of the kernel tick. Not here: timers
//! (`timer`, `perf`). Any thread may call these.

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to a local.
    let outcome = unsafe { libc::clock_gettime(clock, &mut time) };
    (outcome == 0).then(|| (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
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
pub(super) fn thread_cpu_clock(thread_id: u32) -> libc::clockid_t {
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
    use super::*;

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
