//! The perf clock on real threads: what it promises beyond weights, and what timers promise with it when walks are slow. Where
//! the kernel refuses perf there is nothing of it to see.

use super::live_tests::{burn, drain, one_at_a_time, settings, start, told_by_thread};
use super::*;
use spanprof_signal::{Captured, HandlerContext, RawFrame, RawStack};
use std::sync::atomic::{AtomicU64, Ordering};

fn is_allowed() -> bool {
    perf::probe(perf::Notify::Signal(libc::SIGURG)).is_ok()
}

fn has_traps() -> bool {
    perf::probe(perf::Notify::Trap).is_ok()
}

/// Short sleeps and polls of a thread that burns 5 µs between them: how many returned EINTR, and the samples.
fn interrupted_calls(settings: ClockSettings) -> (usize, u64) {
    let clocks = start(settings);
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    let before = clocks.counters().samples;
    let short = (0..16_000).filter(|call| {
        burn(5_000);
        // SAFETY: each reads one timespec; no file is polled.
        unsafe {
            match call % 2 {
                0 => libc::ppoll(std::ptr::null_mut(), 0, &moment, std::ptr::null()) < 0,
                _ => libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &moment, std::ptr::null_mut()) != 0,
            }
        }
    });
    (short.count(), clocks.counters().samples - before)
}

#[test]
fn a_sample_cuts_no_system_call_short() {
    let _turn = one_at_a_time();
    for clock in [ClockChoice::Perf, ClockChoice::Sigtrap, ClockChoice::ThreadTimer] {
        if clock == ClockChoice::ThreadTimer || is_allowed() && has_traps() {
            // Where nothing restarts them, the signal at the overflow lets 1 in 60 of these polls return EINTR.
            let (interrupted, samples) = interrupted_calls(settings(clock, 10_000));
            assert_eq!(interrupted, 0, "{clock:?}, {samples} samples");
            assert!(samples > 0, "{clock:?}");
        }
    }
}

/// The event runs on while the stack is walked, and overflows again.
#[test]
fn a_sample_whose_walk_takes_longer_than_the_period_cuts_no_system_call_short() {
    static WALKS: AtomicU64 = AtomicU64::new(0);
    unsafe fn slow_every_third_time(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
        if WALKS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            let end = current_thread_cpu_ns() + 1_000_000;
            while current_thread_cpu_ns() < end {
                std::hint::spin_loop();
            }
        }
        stack.push(RawFrame { code: 0x1000_0000, at: 7 });
        Captured::Walked
    }
    let _turn = one_at_a_time();
    if is_allowed() {
        let (interrupted, samples) =
            interrupted_calls(ClockSettings { capture: slow_every_third_time, ..settings(ClockChoice::Perf, 2_000) });
        assert_eq!(interrupted, 0, "{samples} samples");
        assert!(samples > 0);
    }
}

/// The host's signal arrives before, during or after a sample that interrupts the same call.
#[test]
fn a_signal_of_the_host_still_interrupts_the_call_that_waits_for_it() {
    extern "C" fn notices(_: libc::c_int) {}
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    // One that the kernel delivers before SIGURG, and one that it delivers after it.
    for signal in [libc::SIGALRM, libc::SIGWINCH] {
        super::fork_tests::in_child(|| {
            let clocks = start(settings(ClockChoice::Perf, 10_000));
            // SAFETY: a plain handler without SA_RESTART; sets of this test's own.
            let none = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = notices as *const () as usize;
                libc::sigaction(signal, &action, std::ptr::null_mut());
                std::mem::zeroed::<libc::sigset_t>()
            };
            threads::block_signal(signal);
            clocks.register_current_thread();
            let alarm = timer::create_for_signal(signal).expect("a timer");
            let patience = libc::timespec { tv_sec: 5, tv_nsec: 0 };
            for turn in 0..3_000 {
                assert!(timer::ring_in(alarm, 1_000 + turn % 100 * 1_000));
                burn(5_000);
                // SAFETY: no file is polled; the signal is unblocked for the length of the call.
                let outcome = unsafe { libc::ppoll(std::ptr::null_mut(), 0, &patience, &none) };
                assert_eq!(outcome, -1, "turn {turn}: the call waited on after signal {signal}");
            }
            assert!(clocks.counters().samples > 0);
        });
    }
}

/// How many walks still take so much of the thread's CPU time. Bounded: a thread that is never let go ends them.
static SLOW: AtomicU64 = AtomicU64::new(0);
static SLOW_WALK_NS: AtomicU64 = AtomicU64::new(0);

unsafe fn at_times_slow(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let end = current_thread_cpu_ns() + SLOW_WALK_NS.load(Ordering::Relaxed);
    let is_slow = SLOW.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    while is_slow && current_thread_cpu_ns() < end {
        std::hint::spin_loop();
    }
    stack.push(RawFrame { code: 0x1000_0000, at: 7 });
    Captured::Walked
}

/// While each walk takes longer than the time between samples, the thread has half a period to itself after each.
fn a_slow_walk_leaves_the_thread_its_turn_at(clock: ClockChoice, rate_hz: u32, walk_ns: u64) {
    let _turn = one_at_a_time();
    if clock == ClockChoice::Perf && !is_allowed() {
        return;
    }
    SLOW_WALK_NS.store(walk_ns, Ordering::Relaxed);
    let clocks = start(ClockSettings { capture: at_times_slow, ..settings(clock, rate_hz) });
    let (samples, passed_ns) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            clocks.register_current_thread();
            burn(20_000_000);
            SLOW.store(500, Ordering::Relaxed);
            let begun = current_thread_cpu_ns();
            let ended = burn(200_000_000);
            let slow = 500 - SLOW.swap(0, Ordering::Relaxed);
            (slow, ended - begun)
        });
        worker.join().unwrap()
    });
    let own_ns = passed_ns.saturating_sub(samples * walk_ns);
    let half_a_period_ns = 500_000_000 / u64::from(rate_hz);
    // A few more: those whose event ran by itself when walks became slow, and the one that was under way at each end.
    assert!(samples > 3, "{samples} samples");
    assert!(
        samples <= own_ns / half_a_period_ns + 6,
        "{samples} samples in {own_ns} ns of the thread's own at {rate_hz} Hz"
    );
}

#[test]
fn a_slow_walk_leaves_the_thread_its_turn_at_the_highest_rate() {
    a_slow_walk_leaves_the_thread_its_turn_at(ClockChoice::Perf, 10_000, 1_000_000);
}

#[test]
fn a_slow_walk_leaves_the_thread_its_turn_at_a_rate_whose_events_run_by_themselves() {
    a_slow_walk_leaves_the_thread_its_turn_at(ClockChoice::Perf, 2_000, 1_000_000);
}

#[test]
fn a_slow_walk_leaves_the_thread_its_turn_at_a_rate_whose_timers_run_by_themselves() {
    a_slow_walk_leaves_the_thread_its_turn_at(ClockChoice::ThreadTimer, 100, 16_000_000);
}

#[test]
fn the_asked_rate_is_kept_by_events_that_run_by_themselves() {
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    let clocks = start(settings(ClockChoice::Perf, 2_000));
    let (me, told_ns) = told_by_thread(|| {
        clocks.register_current_thread();
        burn(1_000_000_000);
    });
    let seen = drain(&clocks).remove(&me).expect("samples of the burning thread");
    assert_eq!(seen.weight_ns, told_ns);
    // Some 31 intervals are drawn: four standard deviations of their sum. Fewer where the machine takes its processors away.
    assert!((750..=2_420).contains(&seen.samples), "{seen:?}");
}

#[test]
fn a_breakpoint_of_the_host_ends_a_process_without_a_handler_for_it_as_ever() {
    let _turn = one_at_a_time();
    if !has_traps() {
        return;
    }
    let clocks = start(settings(ClockChoice::Sigtrap, 1_000));
    // SAFETY: the child only traps; what it inherits is not touched.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: sends a signal to the only thread of the child, and leaves at once if that did not end it.
        unsafe {
            libc::raise(libc::SIGTRAP);
            libc::_exit(0);
        }
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTRAP, "status {status:#x}");
    clocks.stop();
}
