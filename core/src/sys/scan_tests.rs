//! What a scan of the threads must not do to threads that live: it reads a list that threads leave meanwhile, and clocks
//! that go on meanwhile.

use super::live_tests::{burn, drain, one_at_a_time, settings, start, told_by_now, told_by_thread, Ends};
use super::*;
use spanprof_signal::handler;
use std::sync::atomic::{AtomicBool, Ordering};

/// Leaves the calling thread one processor.
fn stay_on(processor: usize) {
    // SAFETY: an all-zero set is a valid value; the calls work on a local and on this thread alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

#[test]
fn a_thread_that_takes_the_processor_in_the_middle_of_a_scan_is_told_once() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::Auto, 1_000));
    // SAFETY: asks which processor this is.
    let processor = unsafe { libc::sched_getcpu() }.max(0) as usize;
    let scans = AtomicBool::new(true);
    // Each wakes up in the middle of what the scan does, again and again.
    let burner = || {
        stay_on(processor);
        clocks.register_current_thread();
        for _ in 0..400 {
            burn(300_000);
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        told_by_now()
    };
    let told = std::thread::scope(|scope| {
        let _end = Ends(&scans);
        scope.spawn(|| {
            stay_on(processor);
            while scans.load(Ordering::Relaxed) {
                clocks.scan();
            }
        });
        let burners: Vec<_> = (0..8).map(|_| scope.spawn(burner)).collect();
        burners.into_iter().map(|burner| burner.join().unwrap()).collect::<Vec<_>>()
    });
    let seen = drain(&clocks);
    for (thread_id, told_ns) in told {
        assert_eq!(seen.get(&thread_id).map(|seen| seen.weight_ns), Some(told_ns), "{seen:?}");
    }
}

#[test]
fn a_thread_that_the_list_left_out_keeps_its_clock_while_it_lives() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 1_000));
    let (thread_id, told_ns) = told_by_thread(|| {
        clocks.register_current_thread();
        burn(50_000_000);
        clocks.scan_list(&[]);
        clocks.scan();
        burn(50_000_000);
    });
    let seen = drain(&clocks).remove(&thread_id).expect("samples of the burning thread");
    assert_eq!((seen.first, seen.weight_ns), (1, told_ns), "{seen:?}");
}

#[test]
fn a_thread_whose_samples_are_ahead_of_its_clock_is_no_new_thread() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 100));
    let (thread_id, told_ns) = told_by_thread(|| {
        clocks.register_current_thread();
        burn(30_000_000);
        let me = thread_id();
        let slot = handler::touched_slots().iter().find(|slot| slot.is_live() && slot.thread_id() == me).unwrap();
        let inbox = inbox_in_use().expect("the clocks run");
        handler::tell_signal_blocked(inbox, slot, current_thread_cpu_ns() + 20_000_000);
        clocks.scan();
        burn(30_000_000);
    });
    let seen = drain(&clocks).remove(&thread_id).expect("samples of the burning thread");
    assert_eq!((seen.first, seen.weight_ns), (1, told_ns), "{seen:?}");
}

#[test]
fn a_thread_that_could_not_get_a_clock_is_told_once_it_can_as_it_would_have_been_then() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 100));
    let accounted_ns = std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            burn(30_000_000);
            let (me, mut registry) = (thread_id(), registry::Registry::default());
            let ticking = |signal| registry::Ticking {
                kind: registry::Kind::Timer,
                signal,
                period_ns: 10_000_000,
                inbox: inbox_in_use().expect("the clocks run"),
            };
            // The kernel has no such signal.
            registry.open(me, registry::Birth::Accounted(29_000_000), &ticking(100));
            assert_eq!((registry.len(), registry.refused()), (0, 1));
            registry.follow(&[me], registry::Birth::AfterStart, &ticking(libc::SIGPROF));
            assert_eq!((registry.len(), registry.refused()), (1, 0));
            let accounted_ns = registry.threads().map(|(_, slot)| slot.accounted_cpu_ns()).next();
            registry.close_all();
            accounted_ns
        });
        refused.join().unwrap()
    });
    drop(clocks);
    assert!(accounted_ns >= Some(29_000_000), "{accounted_ns:?}");
}
