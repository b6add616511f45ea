//! The perf clock on real threads: what it promises beyond weights. Where the kernel refuses it there is nothing to see.

use super::live_tests::{burn, drain, one_at_a_time, settings, start, told_by_now};
use super::*;
use spanprof_signal::{Captured, HandlerContext, RawFrame, RawStack};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn is_allowed() -> bool {
    perf::probe(libc::SIGPROF).is_ok()
}

#[test]
fn a_trap_cuts_no_system_call_short() {
    let _turn = one_at_a_time();
    if !is_allowed() || !perf::traps() {
        return;
    }
    let clocks = start(settings(ClockChoice::Perf, 10_000));
    let (interrupted, samples) = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            clocks.register_current_thread();
            let moment = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
            let short = (0..8_000).filter(|_| {
                burn(5_000);
                // SAFETY: reads one timespec; no file is polled.
                unsafe { libc::ppoll(std::ptr::null_mut(), 0, &moment, std::ptr::null()) < 0 }
            });
            (short.count(), clocks.counters().samples)
        });
        sleeper.join().unwrap()
    });
    // With signals at the overflow itself some 1 in 100 of these calls returns EINTR.
    assert_eq!(interrupted, 0, "{samples} samples");
    assert!(samples > 0);
}

unsafe fn slow(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let end = monotonic_ns() + 1_000_000;
    while monotonic_ns() < end {
        std::hint::spin_loop();
    }
    stack.push(RawFrame { code: 0x1000_0000, at: 7 });
    Captured::Walked
}

/// Work of the thread itself gets done while each walk takes longer than the time between samples.
fn a_slow_walk_leaves_the_thread_its_turn_at(rate_hz: u32) {
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    let clocks = start(ClockSettings { capture: slow, ..settings(ClockChoice::Perf, rate_hz) });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            clocks.register_current_thread();
            let mut x = 1u64;
            for _ in 0..3_000_000 {
                x = std::hint::black_box(x.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(7));
            }
            done.store(true, Ordering::Relaxed);
        });
        for _ in 0..200 {
            if done.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let in_time = done.load(Ordering::Relaxed);
        // Frees a thread that is never let go.
        clocks.stop();
        worker.join().unwrap();
        assert!(in_time, "a few milliseconds of work took more than 20 s at {rate_hz} Hz");
    });
}

#[test]
fn a_slow_walk_leaves_the_thread_its_turn_at_the_highest_rate() {
    a_slow_walk_leaves_the_thread_its_turn_at(10_000);
}

#[test]
fn a_slow_walk_leaves_the_thread_its_turn_at_a_rate_whose_events_run_by_themselves() {
    a_slow_walk_leaves_the_thread_its_turn_at(2_000);
}

#[test]
fn the_asked_rate_is_kept_by_events_that_run_by_themselves() {
    let _turn = one_at_a_time();
    if !is_allowed() {
        return;
    }
    let clocks = start(settings(ClockChoice::Perf, 1_000));
    let (me, told_ns) = std::thread::scope(|scope| {
        let burner = scope.spawn(|| {
            clocks.register_current_thread();
            burn(400_000_000);
            told_by_now(&clocks)
        });
        burner.join().unwrap()
    });
    let seen = drain(&clocks).remove(&me).expect("samples of the burning thread");
    assert_eq!(seen.weight_ns, told_ns);
    // Never more than asked for; fewer where the machine takes its processors away.
    assert!((150..=440).contains(&seen.samples), "{seen:?}");
}

#[test]
fn a_breakpoint_of_the_host_ends_a_process_without_a_handler_for_it_as_ever() {
    let _turn = one_at_a_time();
    if !is_allowed() || !perf::traps() {
        return;
    }
    let clocks = start(settings(ClockChoice::Perf, 1_000));
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
