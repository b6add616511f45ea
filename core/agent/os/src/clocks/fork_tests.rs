//! Forks while the clocks run: the child works unprofiled and may start its own clocks; the parent is unaffected.

use super::live_tests::{burn, burn_until, drain, settings, start};
use crate::clocks::clock_types::ClockChoice;
use crate::clocks::thread_clocks::Clocks;
use crate::fork::install_fork_hook;
use crate::memory::inboxes::inbox;
use crate::testing::StopOnDrop;
use crate::testing::{in_child, one_at_a_time};
use crate::threads::listing::thread_id;
use spanprof_signal::fork_generation;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `body` while three threads with a clock use CPU.
fn with_burning_threads(clocks: &Clocks, body: impl FnOnce()) {
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&running);
        for _ in 0..3 {
            scope.spawn(|| {
                clocks.register_current_thread();
                while running.load(Ordering::Relaxed) {
                    burn(1_000_000);
                }
            });
        }
        body();
    });
}

fn perf_descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_perf = |path: std::path::PathBuf| path.to_string_lossy().contains("perf_event");
    all.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_perf)).count()
}

fn assert_children_work_unprofiled(kind: ClockChoice, forks: usize) {
    let _turn = one_at_a_time();
    let clocks = start(settings(kind, 2_000));
    with_burning_threads(&clocks, || {
        let before = clocks.counters().samples;
        for _ in 0..forks {
            let generation = fork_generation();
            in_child(|| {
                assert_eq!(fork_generation(), generation + 1);
                burn(2_000_000);
                assert_eq!(
                    clocks.counters().samples,
                    0,
                    "no clock ticks in the child, and the parent's samples are not counted"
                );
                assert!(clocks.ring().is_empty() && clocks.live_threads().is_empty());
                assert_eq!(perf_descriptors(), 0);
                // The parent's handle has no effect here, and never waits.
                clocks.scan();
                clocks.set_rate(10);
                clocks.register_current_thread();
                clocks.stop();
                // SAFETY: a signal to this process, whose handler is still installed.
                unsafe { libc::raise(libc::SIGURG) };
            });
            drain(&clocks);
        }
        // The burning threads may not have been scheduled yet.
        for _ in 0..10_000 {
            if clocks.counters().samples > before {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the parent's threads are no longer sampled");
    });
}

#[test]
fn a_hundred_children_of_a_parent_with_timers_work_unprofiled() {
    assert_children_work_unprofiled(ClockChoice::ThreadTimer, 100);
}

#[test]
fn children_of_a_parent_with_perf_work_unprofiled() {
    if super::perf::probe(libc::SIGURG).is_ok() {
        assert_children_work_unprofiled(ClockChoice::Perf, 25);
    }
}

#[test]
fn a_child_starts_its_own_clocks_with_an_empty_ring_and_new_accounting() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 1_000));
    with_burning_threads(&clocks, || {
        for _ in 0..10 {
            in_child(|| {
                let own = Clocks::start(settings(ClockChoice::Auto, 1_000)).expect("the child's clocks start");
                burn(40_000_000);
                burn_until(|| own.counters().samples >= 3);
                let account = own.account();
                let mut drained = drain(&own);
                let mine = drained.remove(&thread_id()).expect("samples of the child's thread");
                assert!(drained.is_empty(), "only the child's thread: {drained:?}");
                assert!(mine.samples >= 3 && mine.weight_ns >= 10_000_000, "{mine:?}");
                assert!((40_000_000..3_000_000_000).contains(&account.process_ns), "{account:?}");
                // Also in a grandchild.
                in_child(|| assert!(own.ring().is_empty()));
                own.stop();
            });
        }
    });
}

#[test]
fn an_executed_program_inherits_neither_clock_nor_descriptor() {
    let _turn = one_at_a_time();
    let _clocks = start(settings(ClockChoice::Auto, 2_000));
    // An inherited timer would end it: the default action of its signal ends the process.
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; ls -l /proc/self/fd";
    let output = std::process::Command::new("/bin/sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("perf_event"));
}

#[test]
fn the_ring_is_clean_in_a_child_of_a_parent_that_submits_continuously() {
    let _turn = one_at_a_time();
    install_fork_hook();
    let inbox = inbox(1 << 17).expect("memory for a ring");
    let frames = [spanprof_signal::RawFrame { code: u64::MAX, at: u64::MAX }; 20];
    let sample = |key| spanprof_signal::RawSample {
        kind: spanprof_signal::SampleKind::Lock,
        flags: spanprof_signal::SampleFlags(0),
        thread_id: 1,
        time_ns: 2,
        values: [3, 4],
        key,
        context: spanprof_signal::Context::Id(u64::MAX),
        frames: &frames,
    };
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&running);
        for _ in 0..2 {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    let _ = inbox.submit(&sample(0));
                }
            });
        }
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                inbox.ring().drain(inbox.ring().head(), &mut |_, _| {});
            }
        });
        for _ in 0..30 {
            in_child(|| {
                // More than the ring holds, so that every word is used.
                for key in 1..=1_000 {
                    inbox.submit(&sample(key)).expect("an empty ring accepts a sample");
                    let mut keys = Vec::new();
                    inbox.ring().drain(inbox.ring().head(), &mut |_, sample| keys.push(sample.key));
                    assert_eq!(keys, [key]);
                }
            });
        }
    });
}
