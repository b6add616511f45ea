//! Forks while the clocks run: the child is alive and unprofiled, may start its own, and the parent does not notice.

use super::live_tests::{burn, burn_until, drain, one_at_a_time, settings, start, Ends};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `child` in a forked process, which must end well.
pub(crate) fn in_child(child: impl FnOnce()) {
    assert_eq!(wait_status_of_child(child), 0, "the child's wait status");
}

/// Runs `child` in a forked process, which must end within half a minute: much for what the tests do, little for a hang.
pub(super) fn wait_status_of_child(child: impl FnOnce()) -> libc::c_int {
    // SAFETY: the child runs `child` on its only thread, then leaves by _exit; the C library's allocator survives forks.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_err();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(failed as libc::c_int) };
    }
    let mut status = 0;
    for _ in 0..30_000 {
        // SAFETY: asks after the child just made.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            return status;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // SAFETY: the child just made, which hangs.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &mut status, 0);
    }
    panic!("the child hangs");
}

/// While `body` runs, three threads burn CPU under a clock.
fn with_burning_threads(clocks: &Clocks, body: impl FnOnce()) {
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let _ends = Ends(&running);
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

fn children_are_alive_and_unprofiled(kind: ClockChoice, forks: usize) {
    let _turn = one_at_a_time();
    let clocks = start(settings(kind, 2_000));
    with_burning_threads(&clocks, || {
        let before = clocks.counters().samples;
        for _ in 0..forks {
            let generation = fork_generation();
            in_child(|| {
                assert_eq!(fork_generation(), generation + 1);
                burn(2_000_000);
                assert_eq!(clocks.counters().samples, 0, "no clock ticks here, and the parent's are not ours");
                assert!(clocks.ring().is_empty() && clocks.live_threads().is_empty());
                assert_eq!(perf_descriptors(), 0);
                // The parent's handle does nothing here, and waits for nobody.
                clocks.scan();
                clocks.set_rate(10);
                clocks.register_current_thread();
                clocks.stop();
                // SAFETY: a signal to this process, whose handler is still ours.
                unsafe { libc::raise(libc::SIGURG) };
            });
            drain(&clocks);
        }
        // The burning threads may not have had a processor meanwhile.
        for _ in 0..10_000 {
            if clocks.counters().samples > before {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the parent's threads are sampled no more");
    });
}

#[test]
fn a_hundred_children_of_a_parent_on_timers_are_alive_and_unprofiled() {
    children_are_alive_and_unprofiled(ClockChoice::ThreadTimer, 100);
}

#[test]
fn children_of_a_parent_on_perf_are_alive_and_unprofiled() {
    if perf::probe(perf::Notify::Signal(libc::SIGURG)).is_ok() {
        children_are_alive_and_unprofiled(ClockChoice::Perf, 25);
    }
}

#[test]
fn a_child_starts_its_own_clocks_with_an_empty_ring_and_its_own_account() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::ThreadTimer, 1_000));
    with_burning_threads(&clocks, || {
        for _ in 0..10 {
            in_child(|| {
                let own = Clocks::start(settings(ClockChoice::Auto, 1_000)).expect("the child's clocks start");
                burn(40_000_000);
                burn_until(|| own.counters().samples >= 3);
                let account = own.account();
                let mut seen = drain(&own);
                let mine = seen.remove(&thread_id()).expect("samples of the child's thread");
                assert!(seen.is_empty(), "only the child's thread: {seen:?}");
                assert!(mine.samples >= 3 && mine.weight_ns >= 10_000_000, "{mine:?}");
                assert!((40_000_000..3_000_000_000).contains(&account.process_ns), "{account:?}");
                // In the child of the child too.
                in_child(|| assert!(own.ring().is_empty()));
                own.stop();
            });
        }
    });
}

#[test]
fn an_executed_program_has_neither_clock_nor_descriptor_of_ours() {
    let _turn = one_at_a_time();
    let _clocks = start(settings(ClockChoice::Auto, 2_000));
    // A timer that lived on would kill it: the default action of the signal is to end the process.
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; ls -l /proc/self/fd";
    let output = std::process::Command::new("/bin/sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("perf_event"));
}

#[test]
fn a_child_of_a_parent_whose_threads_write_without_pause_finds_a_clean_ring() {
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
        let _ends = Ends(&running);
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
                // More than the ring holds, so that every word of it is used.
                for key in 1..=1_000 {
                    inbox.submit(&sample(key)).expect("an empty ring has room");
                    let mut keys = Vec::new();
                    inbox.ring().drain(inbox.ring().head(), &mut |_, sample| keys.push(sample.key));
                    assert_eq!(keys, [key]);
                }
            });
        }
    });
}
