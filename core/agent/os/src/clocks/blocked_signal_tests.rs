//! CPU time of threads that block the clock's signal.

use super::live_tests::{burn, drain, settings, start, DrainedSamples};
use crate::clocks::clock_types::ClockChoice;
use crate::clocks::thread_clocks::Clocks;
use crate::testing::one_at_a_time;
use crate::threads::listing::thread_id;
use crate::time::current_thread_cpu_ns;
use spanprof_signal::DropReason;

/// Samples of a thread that blocks the signal during `work`, with 20 ms of CPU time before and after it; and the result of
/// `work`: the CPU time with the signal blocked.
fn samples_around(clocks: &Clocks, work: impl FnOnce() -> u64 + Send) -> (DrainedSamples, u64) {
    let (me, blocked_ns) = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            clocks.register_current_thread();
            burn(20_000_000);
            crate::threads::listing::block_signal(libc::SIGURG);
            let blocked_ns = work();
            crate::threads::listing::unblock_signal(libc::SIGURG);
            burn(20_000_000);
            (thread_id(), blocked_ns)
        });
        blocked.join().unwrap()
    });
    (drain(clocks).remove(&me).unwrap(), blocked_ns)
}

/// Measured, since a suspended virtual machine may count the suspension as CPU time.
fn measured_burn(ns: u64) -> u64 {
    let begun = current_thread_cpu_ns();
    burn(ns) - begun
}

#[test]
fn cpu_time_with_the_signal_blocked_has_its_own_reason() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 1_000));
    let (drained, blocked_ns) = samples_around(&clocks, || {
        burn(200_000_000);
        clocks.scan();
        let accounted_ns = drain(&clocks).remove(&thread_id()).map_or(0, |drained| drained.weight_ns);
        assert!(accounted_ns > 190_000_000, "{accounted_ns} ns accounted for while the signal is blocked");
        measured_burn(200_000_000)
    });
    let accounted_ns = drained.reasons.get(&DropReason::SignalBlocked).map_or(0, |(_, ns)| *ns);
    // Without the period before the due time, and the time until the signal arrived.
    assert!(accounted_ns.abs_diff(blocked_ns) < blocked_ns / 10, "{drained:?}, {blocked_ns} ns blocked");
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "the call that unblocks signals is not known by its code")]
fn cpu_time_with_the_signal_blocked_is_not_charged_to_the_code_that_unblocks_it() {
    let _turn = one_at_a_time();
    for (kind, reason) in
        [(ClockChoice::Perf, DropReason::SignalBlocked), (ClockChoice::ThreadTimer, DropReason::LateTick)]
    {
        if kind == ClockChoice::Perf && super::perf::probe(libc::SIGURG).is_err() {
            continue;
        }
        let clocks = start(settings(kind, 1_000));
        let (drained, blocked_ns) = samples_around(&clocks, || measured_burn(90_000_000));
        let lost_ns = drained.reasons.get(&reason).map_or(0, |(_, ns)| *ns);
        // One period is that of the stack; the time before the signal was blocked is in the same tick.
        assert!(lost_ns.abs_diff(blocked_ns) < blocked_ns / 8, "{kind:?}: {drained:?}, {blocked_ns} ns blocked");
    }
}
