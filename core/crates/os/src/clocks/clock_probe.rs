//! What the kernel grants to clocks in this process, tried without starting one. For diagnosis; not async-signal-safe.

use super::clock_choice::choose;
use super::clock_types::{ClockChoice, ClockError, ClockInUse};
use super::perf;

/// The clock that [`start_clocks`](crate::start_clocks) would take in this process, if SIGURG is free; nothing is started.
///
/// # Errors
/// The call that the kernel refuses, with the remedy.
pub fn probe_clock(kind: ClockChoice, rate_hz: u32) -> Result<ClockInUse, ClockError> {
    choose(kind, rate_hz, libc::SIGURG).map(|(_, in_use)| in_use)
}

/// Memory that the kernel locks for a perf event, its ring buffer, in bytes.
pub const PERF_BUFFER_BYTES: u64 = spanprof_signal::overflow::BUFFER_BYTES as u64;

/// Number of perf events with their ring buffers that this process can hold at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfEventProbe {
    /// Events that were open at once; closed again.
    pub opened: usize,
    /// Events that the profiler opens at most, by [`perf_event_budget`](crate::perf_event_budget).
    pub budget: usize,
    /// The error of the first event that was not opened.
    pub refusal: Option<String>,
}

/// Opens as many perf events as the profiler would, and closes them.
pub fn probe_perf_events() -> PerfEventProbe {
    let budget = perf::descriptor_budget();
    let mut events = Vec::with_capacity(budget);
    let mut refusal = perf::probe(libc::SIGURG).err();
    while refusal.is_none() && events.len() < budget {
        match perf::open(crate::thread_id(), libc::SIGURG, 1_000_000) {
            Ok(event) => events.push(event),
            Err(error) => refusal = Some(error.to_string()),
        }
    }
    let opened = events.len();
    events.into_iter().for_each(perf::close);
    PerfEventProbe { opened, budget, refusal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_child, one_at_a_time};

    fn limit(resource: libc::__rlimit_resource_t, value: libc::rlim_t) {
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: the kernel reads a local.
        assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
    }

    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn the_probed_clock_is_that_of_a_start() {
        let _turn = one_at_a_time();
        let clocks = crate::clocks::live_tests::start(crate::clocks::live_tests::settings(ClockChoice::Auto, 100));
        let started = clocks.in_use();
        clocks.stop();
        let probed = probe_clock(ClockChoice::Auto, 100).unwrap();
        assert_eq!((probed.name, probed.reason), (started.name, started.reason));
    }

    #[test]
    fn the_probe_opens_the_budget_of_the_descriptor_limit_and_leaves_none_open() {
        in_child(|| {
            limit(libc::RLIMIT_NOFILE, 80);
            let before = descriptors();
            let probe = probe_perf_events();
            assert_eq!(probe.budget, 10);
            match probe.refusal {
                None => assert_eq!(probe.opened, 10),
                Some(reason) => assert!(probe.opened < 10 && !reason.is_empty(), "{reason}"),
            }
            assert_eq!(descriptors(), before);
        });
    }
}
