//! The system calls that a seccomp filter allows. A filter may end the process at a call that the language runtime
//! never makes (`SystemCallFilter=` of systemd kills by default). So each such call is first made in a child process
//! (`spanprof_signal::probe`), once, before the profiler uses any of them. A call that ended its child is never made.
//! Without a filter nothing is probed.

use spanprof_signal::{probe, restart};
use std::sync::atomic::{AtomicU32, Ordering};

/// A call, or a group of calls that are only useful together, that the runtime never makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SystemCall {
    /// CPU samples by the perf clock.
    PerfEventOpen,
    /// `timer_create`, `timer_settime`, `timer_delete`: CPU samples by timers, and the scan timer.
    TimerCreate,
    /// Resuming a wait that a sample or a wall request interrupted, with a timer.
    RestartSyscall,
    /// Names of threads and of mappings.
    Prctl,
    /// Announcement of this copy of the library, where mappings have no names.
    MemfdCreate,
    /// Guarded reads while another fault handler is installed.
    ProcessVmReadv,
    /// Wall requests to threads that walk themselves.
    RtTgsigqueueinfo,
    /// Discarding SIGPIPE of our own threads.
    RtSigtimedwait,
    /// Allocating the blocks of the file of the heap at its peak.
    Fallocate,
}

impl SystemCall {
    const ALL: [Self; 9] = [
        Self::PerfEventOpen,
        Self::TimerCreate,
        Self::RestartSyscall,
        Self::Prctl,
        Self::MemfdCreate,
        Self::ProcessVmReadv,
        Self::RtTgsigqueueinfo,
        Self::RtSigtimedwait,
        Self::Fallocate,
    ];

    /// The call numbers. All calls have arguments that are invalid or without effect.
    pub(crate) const fn numbers(self) -> &'static [libc::c_long] {
        match self {
            Self::PerfEventOpen => &[libc::SYS_perf_event_open],
            Self::TimerCreate => &[libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_timer_delete],
            Self::RestartSyscall => &[libc::SYS_restart_syscall],
            Self::Prctl => &[libc::SYS_prctl],
            Self::MemfdCreate => &[libc::SYS_memfd_create],
            Self::ProcessVmReadv => &[libc::SYS_process_vm_readv],
            Self::RtTgsigqueueinfo => &[libc::SYS_rt_tgsigqueueinfo],
            Self::RtSigtimedwait => &[libc::SYS_rt_sigtimedwait],
            Self::Fallocate => &[libc::SYS_fallocate],
        }
    }

    /// The name of the (first) call: `PerfEventOpen` is `perf_event_open`.
    pub fn name(self) -> String {
        let snake_case = format!("{self:?}").chars().fold(String::new(), |name, letter| {
            if letter.is_uppercase() {
                format!("{name}_{}", letter.to_lowercase())
            } else {
                format!("{name}{letter}")
            }
        });
        snake_case.trim_start_matches('_').to_owned()
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

const PROBED: u32 = 1 << 31;
/// The allowed calls, and [`PROBED`].
static ALLOWED: AtomicU32 = AtomicU32::new(0);

/// Whether a call is allowed. The first use probes all calls.
pub fn may_use(call: SystemCall) -> bool {
    let mut allowed = ALLOWED.load(Ordering::Acquire);
    if allowed == 0 {
        allowed = PROBED
            | if probe::is_filtered() { probe_all() } else { SystemCall::ALL.iter().map(|call| call.bit()).sum() };
        ALLOWED.store(allowed, Ordering::Release);
        let may_resume = SystemCall::TimerCreate.bit() | SystemCall::RestartSyscall.bit();
        restart::set_may_resume(allowed & may_resume == may_resume);
        if allowed & SystemCall::ProcessVmReadv.bit() == 0 {
            spanprof_signal::guarded::forbid_kernel_reads();
        }
    }
    allowed & call.bit() != 0
}

/// How a seccomp filter refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The filter ends the process. The profiler never makes the call.
    EndsProcess,
    /// The call returns this errno, ENOSYS or EPERM.
    Errno(i32),
}

/// The calls that the seccomp filter of this thread refuses, each tried; none without a filter. For diagnosis: the profiler
/// asks [`may_use`] and reads the result of each call.
pub fn refused_calls() -> Vec<(SystemCall, CallRefusal)> {
    if !probe::is_filtered() {
        return Vec::new();
    }
    let refusal = |call: SystemCall| {
        if !may_use(call) {
            return Some(CallRefusal::EndsProcess);
        }
        // No call fails by these errors with arguments that are no pointers, descriptors or ids.
        let mut errors = call.numbers().iter().filter_map(|number| errno_of(*number));
        errors.find(|errno| [libc::ENOSYS, libc::EPERM].contains(errno)).map(CallRefusal::Errno)
    };
    SystemCall::ALL.into_iter().filter_map(|call| Some((call, refusal(call)?))).collect()
}

/// The error of a call with the arguments of the probe.
fn errno_of(number: libc::c_long) -> Option<i32> {
    // SAFETY: no argument is a valid pointer, descriptor or id, so the call changes nothing.
    let result = unsafe { libc::syscall(number, -1, 0, 0, 0, 0, 0) };
    (result < 0).then(|| std::io::Error::last_os_error().raw_os_error()).flatten()
}

/// The bits of the calls that a child survived.
fn probe_all() -> u32 {
    let survived = probe::surviving(&SystemCall::ALL.map(SystemCall::numbers));
    SystemCall::ALL.iter().enumerate().filter(|(index, _)| survived >> index & 1 != 0).map(|(_, call)| call.bit()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_child, install_filter};

    /// Installs a filter that ends the process at one call.
    fn forbid(number: libc::c_long) {
        install_filter(number, CallRefusal::EndsProcess);
    }

    fn reset_probe() {
        ALLOWED.store(0, Ordering::Relaxed);
    }

    #[test]
    fn every_call_that_is_probed_is_listed_in_security_md() {
        let page = include_str!("../../../../SECURITY.md");
        for call in SystemCall::ALL {
            let name = call.name();
            let named = [format!("`{name}`"), format!("`{name}(")];
            assert!(named.iter().any(|named| page.contains(named)), "{name}");
        }
    }

    #[test]
    fn without_a_filter_every_call_is_allowed() {
        in_child(|| {
            reset_probe();
            assert!(SystemCall::ALL.iter().all(|call| may_use(*call)));
        });
    }

    #[test]
    fn only_the_call_at_which_a_filter_ends_the_process_is_forbidden() {
        for call in SystemCall::ALL {
            in_child(move || {
                reset_probe();
                forbid(call.numbers()[0]);
                for other in SystemCall::ALL {
                    assert_eq!(may_use(other), other != call, "{other:?} where {call:?} is forbidden");
                }
            });
        }
    }

    #[test]
    fn a_refused_call_is_reported_with_its_kind_of_refusal() {
        for call in SystemCall::ALL {
            for errno in [libc::EPERM, libc::ENOSYS] {
                in_child(move || {
                    reset_probe();
                    install_filter(call.numbers()[0], CallRefusal::Errno(errno));
                    assert_eq!(refused_calls(), [(call, CallRefusal::Errno(errno))]);
                });
            }
            in_child(move || {
                reset_probe();
                forbid(call.numbers()[0]);
                assert_eq!(refused_calls(), [(call, CallRefusal::EndsProcess)]);
            });
        }
        assert_eq!(SystemCall::RtTgsigqueueinfo.name(), "rt_tgsigqueueinfo");
    }

    #[test]
    fn a_filter_of_the_starting_thread_alone_is_detected() {
        in_child(|| {
            reset_probe();
            let filtered = std::thread::spawn(|| {
                forbid(libc::SYS_perf_event_open);
                [SystemCall::PerfEventOpen, SystemCall::TimerCreate].map(may_use)
            });
            assert_eq!(filtered.join().unwrap(), [false, true]);
        });
    }

    #[test]
    fn the_probe_leaves_no_child_and_sends_no_signal() {
        in_child(|| {
            reset_probe();
            forbid(libc::SYS_perf_event_open);
            assert!(!may_use(SystemCall::PerfEventOpen));
            let mut pending = 0u64;
            // SAFETY: the kernel writes to locals.
            unsafe {
                libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, 8usize);
                assert_eq!(libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG), -1, "no child");
            }
            assert_eq!(pending, 0);
        });
    }

    #[test]
    fn the_clocks_start_where_a_filter_kills_at_perf_or_at_timers() {
        use crate::clocks::clock_types::ClockChoice;
        use crate::clocks::live_tests::{burn_until, drain, settings};
        use crate::clocks::thread_clocks::Clocks;
        for number in [libc::SYS_perf_event_open, libc::SYS_timer_create] {
            in_child(move || {
                reset_probe();
                forbid(number);
                let expected = if number == libc::SYS_timer_create { "perf" } else { "thread_timer" };
                let clocks = match Clocks::start(settings(ClockChoice::Auto, 250)) {
                    Ok(clocks) => clocks,
                    // Perf is not permitted here: no clock starts, which is an error and no signal.
                    Err(error) => return assert_eq!(expected, "perf", "{error}"),
                };
                assert_eq!(clocks.in_use().name, expected);
                let mut samples = 0;
                burn_until(|| drain(&clocks).is_empty());
                burn_until(|| {
                    crate::clocks::live_tests::burn(20_000_000);
                    !drain(&clocks).is_empty()
                });
                samples += clocks.counters().samples;
                assert!(samples > 0);
            });
        }
    }
}
