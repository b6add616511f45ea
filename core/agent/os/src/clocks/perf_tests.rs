//! The perf clock on real threads: restarted system calls, and progress of the thread under slow walks, also with timers.
//! Perf is skipped where the kernel refuses it.

use super::live_tests::{account_for_thread, burn, burn_until, drain, settings, start};
use crate::clocks::clock_types::{ClockChoice, ClockSettings};
use crate::testing::one_at_a_time;
use crate::testing::StopOnDrop;
use crate::threads::listing::thread_id;
use crate::time::current_thread_cpu_ns;
use spanprof_signal::{self_walk, Captured, HandlerContext, RawFrame, RawStack};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn is_allowed() -> bool {
    super::perf::probe(libc::SIGURG).is_ok()
}

fn leaves_calls() -> bool {
    super::perf::restarts_calls() && is_allowed()
}

/// Makes short sleeps and polls, 5 µs of CPU time apart. Returns how many returned EINTR, and the number of samples.
fn interrupted_calls(settings: ClockSettings) -> (usize, u64) {
    let clocks = start(settings);
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    let before = clocks.counters().samples;
    let interrupted = (0..16_000).filter(|call| {
        burn(5_000);
        // SAFETY: each reads one timespec; no file is polled.
        unsafe {
            match call % 2 {
                0 => libc::ppoll(std::ptr::null_mut(), 0, &timeout, std::ptr::null()) < 0,
                _ => libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &timeout, std::ptr::null_mut()) != 0,
            }
        }
    });
    (interrupted.count(), clocks.counters().samples - before)
}

#[test]
fn a_sample_interrupts_no_system_call() {
    let _turn = one_at_a_time();
    for clock in [ClockChoice::Perf, ClockChoice::ThreadTimer] {
        if clock == ClockChoice::ThreadTimer || leaves_calls() {
            // Without the restart, 1 in 60 of these polls returns EINTR.
            let (interrupted, samples) = interrupted_calls(settings(clock, 10_000));
            assert_eq!(interrupted, 0, "{clock:?}, {samples} samples");
            assert!(samples > 0, "{clock:?}");
        }
    }
}

/// An overflow after the sleep, on the way back to the program, finds the timeout over.
#[test]
fn a_poll_that_is_sampled_takes_its_timeout_once() {
    const TIMEOUT_MS: libc::c_int = 30;
    let _turn = one_at_a_time();
    if !leaves_calls() {
        return;
    }
    let clocks = start(settings(ClockChoice::Perf, 10_000));
    let delay_ns = || crate::threads::thread_state::run_delay_ns(thread_id()).unwrap_or(0);
    // The outcome and the milliseconds, with and without those in which the thread could run but had no processor.
    let timed_poll = |_| {
        let delayed_ns = delay_ns();
        let begun = std::time::Instant::now();
        // SAFETY: no file is polled.
        let outcome = unsafe { libc::poll(std::ptr::null_mut(), 0, TIMEOUT_MS) };
        let ms = begun.elapsed().as_millis() as libc::c_int;
        (outcome, ms, ms - ((delay_ns() - delayed_ns) / 1_000_000) as libc::c_int)
    };
    let of_thread = || {
        // As threads of a C program. The signal stack of Rust's threads has no space for the signal that ends a resumed call.
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: no handler runs on the stack, which this thread no longer uses.
        assert_eq!(unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) }, 0);
        clocks.register_current_thread();
        (0..50).map(timed_poll).collect::<Vec<_>>()
    };
    let polls: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(of_thread)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let early: Vec<_> = polls.iter().filter(|(outcome, ms, _)| *outcome != 0 || *ms < TIMEOUT_MS).collect();
    assert!(early.is_empty(), "{early:?}");
    // 60 to 90 without the resumed call, which a further overflow may interrupt at this rate.
    let doubled: Vec<_> = polls.iter().filter(|(.., ms)| *ms >= 2 * TIMEOUT_MS).collect();
    assert!(doubled.len() <= 20, "{} of {}: {doubled:?}", doubled.len(), polls.len());
}

unsafe fn capture_at_once(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    stack.push(RawFrame { code: 0x1000_0000, at: 7 });
    Captured::Walked
}

unsafe fn capture_slowly_every_third_time(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    static WALKS: AtomicU64 = AtomicU64::new(0);
    if WALKS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
        let end = current_thread_cpu_ns() + 1_000_000;
        while current_thread_cpu_ns() < end {
            std::hint::spin_loop();
        }
    }
    stack.push(RawFrame { code: 0x1000_0000, at: 7 });
    Captured::Walked
}

/// The free-running event overflows again during the walk.
#[test]
fn a_sample_with_a_walk_longer_than_the_period_interrupts_no_system_call() {
    let _turn = one_at_a_time();
    if leaves_calls() {
        let (interrupted, samples) = interrupted_calls(ClockSettings {
            capture: capture_slowly_every_third_time,
            ..settings(ClockChoice::Perf, 2_000)
        });
        assert_eq!(interrupted, 0, "{samples} samples");
        assert!(samples > 0);
    }
}

/// Wall requests use the same signal: the kernel merges them with the signal of an overflow.
#[test]
fn a_thread_is_sampled_at_every_interval_under_requests_with_the_same_signal() {
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    for capture in [capture_at_once as spanprof_signal::CaptureFn, capture_slowly_every_third_time] {
        let clocks = start(ClockSettings { capture, ..settings(ClockChoice::Perf, 2_000) });
        let (running, target) = (AtomicBool::new(true), AtomicU64::new(0));
        let (me, accounted_ns) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    let thread_id = target.load(Ordering::Relaxed) as u32;
                    // No request has this index: the thread only receives the signal.
                    let is_sent = thread_id != 0 && self_walk::send(thread_id, usize::MAX, clocks.in_use().signal);
                    std::thread::sleep(std::time::Duration::from_micros(if is_sent { 50 } else { 1_000 }));
                }
            });
            let stop = StopOnDrop(&running);
            let accounted = account_for_thread(|| {
                clocks.register_current_thread();
                target.store(u64::from(thread_id()), Ordering::Relaxed);
                burn(500_000_000);
            });
            drop(stop);
            accounted
        });
        let drained = drain(&clocks).remove(&me).expect("samples of the burning thread");
        assert_eq!(drained.weight_ns, accounted_ns);
        assert!(drained.reasons.is_empty(), "CPU time without a stack: {drained:?}");
        // A slow walk takes two of the 0.5 ms between samples.
        assert!(drained.samples > 250, "{drained:?}");
    }
}

#[test]
fn a_thread_whose_event_the_program_closed_gets_a_new_one_at_its_next_tick() {
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    // In a child, since the descriptors of other tests would be closed too.
    crate::testing::in_child(|| {
        let clocks = start(settings(ClockChoice::Perf, 1_000));
        clocks.register_current_thread();
        burn(20_000_000);
        for entry in std::fs::read_dir("/proc/self/fd").expect("/proc").flatten() {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            if target.to_string_lossy().contains("perf_event") {
                let descriptor = entry.file_name().to_string_lossy().parse().expect("a number");
                // SAFETY: closes a descriptor, as the program may do.
                unsafe { libc::close(descriptor) };
            }
        }
        let closed_at_ns = current_thread_cpu_ns();
        burn_until(|| clocks.scan_if_due() && clocks.counters().rearmed > 0);
        let replaced_after_ns = current_thread_cpu_ns() - closed_at_ns;
        assert!(replaced_after_ns < 60_000_000, "a new clock after {replaced_after_ns} ns of CPU time");
        drain(&clocks);
        burn(200_000_000);
        let drained = drain(&clocks).remove(&thread_id()).expect("samples");
        assert!(drained.samples > 100, "{drained:?}");
    });
}

#[test]
fn requests_during_changes_of_the_clock_read_no_unmapped_buffer() {
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    // In a child, since a fault ends the process.
    crate::testing::in_child(|| {
        let clocks = start(settings(ClockChoice::Perf, 1_000));
        let running = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let stop = StopOnDrop(&running);
            scope.spawn(|| {
                clocks.register_current_thread();
                while running.load(Ordering::Relaxed) {
                    // To the thread itself, and with an index that no request has.
                    self_walk::send(thread_id(), usize::MAX, clocks.in_use().signal);
                }
            });
            for turn in 0..3_000 {
                // Opens the event of each thread again.
                clocks.set_rate(500 + turn % 2);
            }
            drop(stop);
        });
    });
}

/// The host's signal arrives before, during or after a sample in the same call.
#[test]
fn a_host_signal_still_interrupts_a_waiting_call() {
    extern "C" fn ignore(_: libc::c_int) {}
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    // SIGALRM is delivered before SIGURG, SIGWINCH after it.
    for signal in [libc::SIGALRM, libc::SIGWINCH] {
        crate::testing::in_child(|| {
            let clocks = start(settings(ClockChoice::Perf, 10_000));
            // SAFETY: a handler without SA_RESTART; all-zero sets and actions are valid values.
            let none = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = ignore as *const () as usize;
                libc::sigaction(signal, &action, std::ptr::null_mut());
                std::mem::zeroed::<libc::sigset_t>()
            };
            crate::threads::listing::block_signal(signal);
            clocks.register_current_thread();
            let alarm = crate::timer::create_for_signal(signal).expect("a timer");
            let timeout = libc::timespec { tv_sec: 5, tv_nsec: 0 };
            for turn in 0..3_000 {
                assert!(crate::timer::arm_once(alarm, 1_000 + turn % 100 * 1_000));
                burn(5_000);
                // SAFETY: no file is polled; the signal is unblocked for the length of the call.
                let outcome = unsafe { libc::ppoll(std::ptr::null_mut(), 0, &timeout, &none) };
                assert_eq!(outcome, -1, "turn {turn}: the call continued after signal {signal}");
            }
            assert!(clocks.counters().samples > 0);
        });
    }
}

/// The thread with slow walks. Threads of other tests are sampled too.
static SLOW_THREAD: AtomicU64 = AtomicU64::new(0);
/// Remaining slow walks. Bounded, so that a starved thread terminates the test.
static SLOW_WALKS_LEFT: AtomicU64 = AtomicU64::new(0);
static SLOW_WALK_NS: AtomicU64 = AtomicU64::new(0);

unsafe fn capture_slowly_while_requested(context: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let end = current_thread_cpu_ns() + SLOW_WALK_NS.load(Ordering::Relaxed);
    let is_slow = u64::from(context.thread_id) == SLOW_THREAD.load(Ordering::Relaxed)
        && SLOW_WALKS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    while is_slow && current_thread_cpu_ns() < end {
        std::hint::spin_loop();
    }
    stack.push(RawFrame { code: 0x1000_0000, at: 7 });
    Captured::Walked
}

/// While each walk takes longer than the interval, the thread runs for half a period after each sample.
fn assert_progress_under_slow_walks(clock: ClockChoice, rate_hz: u32, walk_ns: u64) {
    let _turn = one_at_a_time();
    if clock == ClockChoice::Perf && !is_allowed() {
        return;
    }
    SLOW_WALK_NS.store(walk_ns, Ordering::Relaxed);
    let clocks = start(ClockSettings { capture: capture_slowly_while_requested, ..settings(clock, rate_hz) });
    let (samples, elapsed_ns) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            clocks.register_current_thread();
            burn(20_000_000);
            SLOW_THREAD.store(u64::from(thread_id()), Ordering::Relaxed);
            SLOW_WALKS_LEFT.store(500, Ordering::Relaxed);
            let begun = current_thread_cpu_ns();
            burn(200_000_000);
            burn_until(|| SLOW_WALKS_LEFT.load(Ordering::Relaxed) < 490);
            let ended = current_thread_cpu_ns();
            let slow_walks = 500 - SLOW_WALKS_LEFT.swap(0, Ordering::Relaxed);
            (slow_walks, ended - begun)
        });
        worker.join().unwrap()
    });
    let own_ns = elapsed_ns.saturating_sub(samples * walk_ns);
    let half_a_period_ns = 500_000_000 / u64::from(rate_hz);
    // Plus a few: free-running events at the time walks became slow, and the sample in progress at each end.
    assert!(samples > 3, "{samples} samples");
    assert!(
        samples <= own_ns / half_a_period_ns + 6,
        "{samples} samples in {own_ns} ns outside the handler at {rate_hz} Hz"
    );
}

#[test]
fn a_thread_under_slow_walks_progresses_at_the_highest_rate() {
    assert_progress_under_slow_walks(ClockChoice::Perf, 10_000, 1_000_000);
}

#[test]
fn a_thread_under_slow_walks_progresses_with_free_running_events() {
    assert_progress_under_slow_walks(ClockChoice::Perf, 2_000, 1_000_000);
}

#[test]
fn a_thread_under_slow_walks_progresses_with_timers() {
    assert_progress_under_slow_walks(ClockChoice::ThreadTimer, 100, 16_000_000);
}

#[test]
fn free_running_events_keep_the_configured_rate() {
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    let clocks = start(settings(ClockChoice::Perf, 2_000));
    let (me, accounted_ns) = account_for_thread(|| {
        clocks.register_current_thread();
        burn(1_000_000_000);
    });
    let drained = drain(&clocks).remove(&me).expect("samples of the burning thread");
    assert_eq!(drained.weight_ns, accounted_ns);
    // One interval is used for 64 ticks. Simulated: a mean of 2,002 and a standard deviation of 103, of which the upper bound
    // allows six. Fewer samples where a hypervisor steals processors.
    assert!((750..=2_625).contains(&drained.samples), "{drained:?}");
}
