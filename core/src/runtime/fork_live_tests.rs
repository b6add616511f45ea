//! The profiler in forked children, with real forks. Beside the code that is unsafe, as fork is.

use spanprof_aggregate::testing::FakeRuntime;
use spanprof_aggregate::StatValue;
use spanprof_config::Config;
use spanprof_os::current_thread_cpu_ns;
use spanprof_os::testing::{one_at_a_time, StopOnDrop};
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{fork_generation, MAX_PERIODS_AHEAD};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn burn(ns: u64) {
    let end = current_thread_cpu_ns() + ns;
    while current_thread_cpu_ns() < end {
        std::hint::black_box((0..1000u64).sum::<u64>());
    }
}

fn config() -> Config {
    Config { destinations: Some(Vec::new()), sample_rate: 250, ..Config::default() }
}

fn is_in_state(profiler: &ProfilerHandle, state: &str) -> bool {
    profiler.stats().get("state") == Some(&StatValue::Text(state.to_owned()))
}

/// Runs `child` in a forked process; returns its exit code, or `None` if it did not end in time.
pub(super) fn in_forked_child(child: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the child runs only code that supports running after fork, and exits without destructors.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork failed");
    if process == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let mut status = 0;
        // SAFETY: waits for the child created above; writes one int to a local.
        let ended = unsafe { libc::waitpid(process, &mut status, libc::WNOHANG) };
        if ended == process {
            return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        }
        if Instant::now() > until {
            // SAFETY: signals only the child created above.
            unsafe { libc::kill(process, libc::SIGKILL) };
            // SAFETY: waits for the child created above; writes one int to a local.
            unsafe { libc::waitpid(process, &mut status, 0) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_forked_child_profiles_itself_and_the_parent_continues() {
    let _turn = one_at_a_time();
    let profiler =
        ProfilerHandle::start_with_runtime(Config { sample_rate: 1_000, ..config() }, FakeRuntime::new()).unwrap();
    burn(300_000_000);
    let code = in_forked_child(|| {
        let Some(own) = ProfilerHandle::after_fork_in_child() else { return 1 };
        burn(200_000_000);
        // Ticks are rare on an oversubscribed processor.
        for _ in 0..50 {
            if !own.flush(Duration::from_secs(20)) {
                return 2;
            }
            if own.stats().counter("samples.cpu") >= 5 {
                break;
            }
            burn(20_000_000);
        }
        let stats = own.stats();
        // Neither the parent's samples nor any sample twice: the sum of the weights is the CPU time of the child's only thread
        // with a clock. Their number has no such bound: a random interval is used for up to 64 ticks.
        let most_ns = current_thread_cpu_ns() + MAX_PERIODS_AHEAD * 1_000_000;
        if stats.counter("samples.cpu") < 5 || stats.counter("samples.cpu_ns") > most_ns {
            return 3;
        }
        if stats.counter("process.fork_restarts") != 1 {
            return 4;
        }
        if !own.stop() || ProfilerHandle::running().is_some() {
            return 5;
        }
        0
    });
    assert_eq!(code, Some(0));
    let before = profiler.stats().counter("samples.cpu");
    let has_new_samples = || {
        burn(20_000_000);
        assert!(profiler.flush(Duration::from_secs(20)));
        profiler.stats().counter("samples.cpu") > before
    };
    assert!((0..50).any(|_| has_new_samples()));
    assert!(profiler.stop());
}

#[test]
fn forks_while_other_threads_start_stop_and_label_never_hang_the_child() {
    let _turn = one_at_a_time();
    let running = AtomicBool::new(true);
    spanprof_os::install_fork_hook();
    let generation = fork_generation();
    let mut codes = Vec::new();
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&running);
        for worker in 0..3 {
            let running = &running;
            scope.spawn(move || {
                let mut round = 0u64;
                while running.load(Ordering::Relaxed) {
                    let profiler = ProfilerHandle::start_with_runtime(config(), FakeRuntime::new()).unwrap();
                    let value = format!("{worker} {round}");
                    spanprof_aggregate::context::intern_labels(&[("fork", value.as_str())]);
                    burn(2_000_000);
                    if round.is_multiple_of(3) {
                        profiler.stop();
                    }
                    round += 1;
                }
            });
        }
        for _ in 0..100 {
            codes.push(in_forked_child(|| {
                let own = ProfilerHandle::after_fork_in_child();
                if fork_generation() != generation + 1 {
                    return 1;
                }
                spanprof_aggregate::context::intern_labels(&[("child", "new value in the child")]);
                // The parent may have been stopping: the child can also start explicitly.
                let own = match own {
                    Some(own) => own,
                    None => match ProfilerHandle::start_with_runtime(config(), FakeRuntime::new()) {
                        Ok(own) => own,
                        Err(_) => return 2,
                    },
                };
                burn(3_000_000);
                if !own.flush(Duration::from_secs(20)) {
                    return 3;
                }
                i32::from(!own.stop()) * 4
            }));
        }
    });
    assert_eq!(codes, vec![Some(0); 100]);
    if let Some(profiler) = ProfilerHandle::running() {
        profiler.stop();
    }
}

#[test]
fn locks_held_by_the_parents_threads_block_no_thread_of_the_child() {
    let _turn = one_at_a_time();
    let profiler = ProfilerHandle::start_with_runtime(config(), FakeRuntime::new()).unwrap();
    // Held by the forking thread instead of another one: equivalent in the child.
    let code = profiler.with_locks_held(|| {
        in_forked_child(|| {
            let Some(own) = ProfilerHandle::after_fork_in_child() else { return 1 };
            spanprof_aggregate::context::intern_labels(&[("child", "after a fork under locks")]);
            if !own.is_running() || !is_in_state(&own, "running") {
                return 2;
            }
            i32::from(!own.stop()) * 3
        })
    });
    assert_eq!(code, Some(0));
    assert!(profiler.stop());
}

#[test]
fn before_the_childs_hook_the_parents_profiler_is_stopped_there_and_never_waits() {
    let _turn = one_at_a_time();
    let profiler = ProfilerHandle::start_with_runtime(config(), FakeRuntime::new()).unwrap();
    let code = profiler.with_locks_held(|| {
        in_forked_child(|| {
            spanprof_aggregate::context::intern_labels(&[("child", "before the hook")]);
            if ProfilerHandle::running().is_some() || profiler.is_running() {
                return 1;
            }
            if !is_in_state(&profiler, "stopped") {
                return 2;
            }
            profiler.register_current_thread();
            if !profiler.flush(Duration::from_secs(20)) || !profiler.stop() {
                return 3;
            }
            if profiler.update(&spanprof_config::ConfigPatch::default()).is_err() {
                return 4;
            }
            // The hook still starts the profiler of the child.
            i32::from(!ProfilerHandle::after_fork_in_child().is_some_and(|own| own.is_running())) * 5
        })
    });
    assert_eq!(code, Some(0));
    assert!(profiler.is_running() && profiler.stop());
}

#[test]
fn a_child_resolves_frames_although_the_parent_was_resolving_at_the_fork() {
    use spanprof_aggregate::runtime::Runtime;
    let _turn = one_at_a_time();
    spanprof_os::install_fork_hook();
    let frames_of = |code: *const ()| {
        let mut frames = Vec::new();
        crate::runtime::NativeRuntime.resolve(spanprof_signal::RawFrame { code: code as u64, at: 0 }, 0, &mut frames);
        frames
    };
    let running = AtomicBool::new(true);
    let mut codes = Vec::new();
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&running);
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                frames_of(burn as *const ());
            }
        });
        frames_of(burn as *const ());
        for _ in 0..20 {
            let code = in_forked_child(|| i32::from((0..3).any(|_| frames_of(config as *const ()).is_empty())));
            codes.push(code);
            if code.is_none() {
                break;
            }
        }
    });
    assert_eq!(codes, vec![Some(0); 20]);
}
