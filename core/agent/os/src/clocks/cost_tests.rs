//! The cost statistics of samples, compared with measurements of the same samples.

use super::live_tests::{burn, settings, start};
use crate::clocks::clock_types::{ClockChoice, ClockSettings};
use crate::testing::one_at_a_time;
use crate::testing::StopOnDrop;
use crate::time::{current_thread_cpu_ns, monotonic_ns};
use spanprof_signal::{counters, Captured, HandlerContext, RawFrame, RawStack};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

fn is_allowed() -> bool {
    super::perf::probe(libc::SIGURG).is_ok()
}

/// 50 µs of CPU time: the entry and the exit of an unoptimized handler, which no statistic can contain, take up to 5 µs with cold
/// caches.
unsafe fn capture_for_50_us(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let begun_ns = current_thread_cpu_ns();
    while current_thread_cpu_ns() - begun_ns < 50_000 {}
    stack.push(RawFrame { code: 0x1000_0000, at: 7 });
    Captured::Walked
}

type SigactionHandler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// The profiler's handler, while [`measuring_handler`] wraps it.
static HANDLER: AtomicUsize = AtomicUsize::new(0);
static MEASURED_NS: AtomicU64 = AtomicU64::new(0);
static MEASURED_TICKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn measuring_handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `wrap_handler` stored the address of a handler of this type.
    let handler: SigactionHandler = unsafe { std::mem::transmute(HANDLER.load(Ordering::Relaxed)) };
    let begun_ns = current_thread_cpu_ns();
    handler(signal, info, context);
    MEASURED_NS.fetch_add(current_thread_cpu_ns() - begun_ns, Ordering::Relaxed);
    MEASURED_TICKS.fetch_add(1, Ordering::Relaxed);
}

fn wrap_handler(signal: libc::c_int) {
    // SAFETY: an all-zero action is a valid value; the new handler has the same type as the old one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
        HANDLER.store(action.sa_sigaction, Ordering::Relaxed);
        action.sa_sigaction = measuring_handler as *const () as usize;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Time between two consecutive readings of the CPU clock, median.
fn reading_ns() -> u64 {
    let mut durations_ns: Vec<u64> = (0..1_001)
        .map(|_| {
            let begun_ns = current_thread_cpu_ns();
            current_thread_cpu_ns() - begun_ns
        })
        .collect();
    durations_ns.sort_unstable();
    durations_ns[durations_ns.len() / 2]
}

#[test]
fn handler_time_under_cpu_contention_is_that_of_the_thread_clock_around_each_tick() {
    let _turn = one_at_a_time();
    for clock in [ClockChoice::Perf, ClockChoice::ThreadTimer] {
        if clock == ClockChoice::Perf && !is_allowed() {
            continue;
        }
        // In a child, since the wrapper stays installed.
        crate::testing::in_child(|| {
            let clocks =
                start(ClockSettings { capture: capture_for_50_us, ring_bytes: 1 << 24, ..settings(clock, 1_000) });
            wrap_handler(clocks.in_use().signal);
            let running = AtomicBool::new(true);
            let cores = std::thread::available_parallelism().map_or(2, usize::from);
            let [handler_ns, measured_ns] = std::thread::scope(|scope| {
                let stop = StopOnDrop(&running);
                for _ in 0..2 * cores {
                    scope.spawn(|| {
                        clocks.register_current_thread();
                        while running.load(Ordering::Relaxed) {
                            burn(1_000_000);
                        }
                    });
                }
                let counted = || [counters::handler_ns(), MEASURED_NS.load(Ordering::Relaxed)];
                let (before, begun) = (counted(), MEASURED_TICKS.load(Ordering::Relaxed));
                for _ in 0..600 {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    if MEASURED_TICKS.load(Ordering::Relaxed) - begun >= 1_500 {
                        break;
                    }
                }
                let (after, ticks) = (counted(), MEASURED_TICKS.load(Ordering::Relaxed) - begun);
                drop(stop);
                assert!(ticks >= 300, "{clock:?}: {ticks} ticks in half a minute");
                [after[0] - before[0], after[1] - before[1] - ticks * reading_ns()]
            });
            assert!(
                handler_ns.abs_diff(measured_ns) * 5 <= measured_ns,
                "{clock:?}: {handler_ns} ns by the statistics, {measured_ns} ns by the thread's clock"
            );
        });
    }
}

/// Gaps in a thread's execution around its samples, and the counted delivery and handler time.
struct SampleGaps {
    gaps_ns: Vec<u64>,
    delivery_ns: u64,
    handler_ns: u64,
}

fn gaps_of(clock: ClockChoice) -> SampleGaps {
    let clocks = start(settings(clock, 1_000));
    clocks.register_current_thread();
    let counted = || clocks.counters();
    let (before, mut gaps_ns) = (counted(), Vec::new());
    let (mut samples, mut last_ns) = (counters::samples(), monotonic_ns());
    let end_ns = current_thread_cpu_ns() + 500_000_000;
    while gaps_ns.len() % 64 != 63 || current_thread_cpu_ns() < end_ns {
        let now_ns = monotonic_ns();
        if counters::samples() != samples {
            // The sample was taken before or after the read of `now_ns`.
            gaps_ns.push(monotonic_ns() - last_ns);
            (samples, last_ns) = (counters::samples(), monotonic_ns());
        } else {
            last_ns = now_ns;
        }
    }
    clocks.stop();
    let after = counted();
    SampleGaps {
        gaps_ns,
        delivery_ns: after.delivery_ns - before.delivery_ns,
        handler_ns: after.handler_ns - before.handler_ns,
    }
}

#[test]
fn kernel_delivery_time_is_part_of_the_gap_that_the_thread_measures() {
    let _turn = one_at_a_time();
    // In a child: the counters are those of the process, and threads of other tests have samples too.
    crate::testing::in_child(|| {
        if is_allowed() {
            let SampleGaps { mut gaps_ns, delivery_ns, handler_ns } = gaps_of(ClockChoice::Perf);
            gaps_ns.sort_unstable();
            let (sum_ns, median_ns) = (gaps_ns.iter().sum::<u64>(), gaps_ns[gaps_ns.len() / 2]);
            let measurements =
                format!("{} gaps of {median_ns} ns, delivery {delivery_ns}, handler {handler_ns}", gaps_ns.len());
            assert!(delivery_ns + handler_ns < sum_ns + median_ns, "{measurements}");
            // Two thirds on the reference machine.
            assert!(delivery_ns > median_ns * gaps_ns.len() as u64 / 10, "{measurements}");
        }
        assert_eq!(gaps_of(ClockChoice::ThreadTimer).delivery_ns, 0, "a timer does not record when it expired");
    });
}
