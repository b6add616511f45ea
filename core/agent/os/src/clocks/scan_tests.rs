//! Scans of live threads: the list of threads and their clocks change during a scan.

use super::live_tests::{account_for_thread, block_samples_and_account, burn, drain, settings, start};
use crate::clocks::clock_types::ClockChoice;
use crate::testing::one_at_a_time;
use crate::testing::StopOnDrop;
use crate::threads::listing::thread_id;
use crate::time::current_thread_cpu_ns;
use spanprof_signal::{handler, slot_table};
use std::sync::atomic::{AtomicBool, Ordering};

/// Restricts the calling thread to one processor.
fn pin_to(processor: usize) {
    // SAFETY: an all-zero set is a valid value; the calls access a local and this thread's affinity.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

#[test]
fn a_thread_that_preempts_a_scan_is_accounted_for_once() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::Auto, 1_000));
    // SAFETY: no arguments.
    let processor = unsafe { libc::sched_getcpu() }.max(0) as usize;
    let scans = AtomicBool::new(true);
    // Each repeatedly wakes up during a scan.
    let burner = || {
        pin_to(processor);
        clocks.register_current_thread();
        for _ in 0..400 {
            burn(300_000);
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        block_samples_and_account()
    };
    let accounted = std::thread::scope(|scope| {
        let _stop = StopOnDrop(&scans);
        scope.spawn(|| {
            pin_to(processor);
            while scans.load(Ordering::Relaxed) {
                clocks.scan();
            }
        });
        let burners: Vec<_> = (0..8).map(|_| scope.spawn(burner)).collect();
        burners.into_iter().map(|burner| burner.join().unwrap()).collect::<Vec<_>>()
    });
    let drained = drain(&clocks);
    for (thread_id, accounted_ns) in accounted {
        assert_eq!(drained.get(&thread_id).map(|drained| drained.weight_ns), Some(accounted_ns), "{drained:?}");
    }
}

#[test]
fn a_live_thread_missing_in_the_list_keeps_its_clock() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 1_000));
    let (thread_id, accounted_ns) = account_for_thread(|| {
        clocks.register_current_thread();
        burn(50_000_000);
        clocks.scan_list(&[]);
        clocks.scan();
        burn(50_000_000);
    });
    let drained = drain(&clocks).remove(&thread_id).expect("samples of the burning thread");
    assert_eq!((drained.first, drained.weight_ns), (1, accounted_ns), "{drained:?}");
}

#[test]
fn a_thread_with_samples_ahead_of_its_cpu_clock_keeps_its_clock() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 100));
    let (thread_id, accounted_ns) = account_for_thread(|| {
        clocks.register_current_thread();
        burn(30_000_000);
        let me = thread_id();
        let slot = slot_table::used_slots().iter().find(|slot| slot.is_live() && slot.thread_id() == me).unwrap();
        let inbox = clocks.inbox();
        handler::account_signal_blocked(inbox, slot, current_thread_cpu_ns() + 20_000_000);
        clocks.scan();
        burn(30_000_000);
    });
    let drained = drain(&clocks).remove(&thread_id).expect("samples of the burning thread");
    assert_eq!((drained.first, drained.weight_ns), (1, accounted_ns), "{drained:?}");
}

#[test]
fn a_refused_thread_keeps_its_initial_accounting_until_it_gets_a_clock() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 100));
    let accounted_ns = std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            burn(30_000_000);
            let (me, mut registry) = (thread_id(), super::registry::Registry::default());
            let setup = |signal| super::registry::ClockSetup {
                kind: super::registry::TickerKind::Timer,
                signal,
                period_ns: 10_000_000,
                inbox: clocks.inbox(),
            };
            // Not a signal number of the kernel.
            registry.open(me, super::registry::AccountingStart::Accounted(29_000_000), &setup(100));
            assert_eq!((registry.len(), registry.refused()), (0, 1));
            registry.apply_list(&[me], super::registry::AccountingStart::AfterStart, &setup(libc::SIGPROF));
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
