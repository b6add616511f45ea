//! Behavior after the handler of the clocks' signal is reset or replaced: by `exec`, by a framework in its forked
//! workers, by another library.

use super::live_tests::{account_for_thread, burn, burn_until, drain, settings, start};
use crate::clocks::clock_types::ClockChoice;
use crate::clocks::thread_clocks::Clocks;
use crate::memory::fault_guard::fault_guard_owned;
use crate::testing::{in_child, one_at_a_time, wait_status_of_child};
use crate::threads::listing::thread_id;
use spanprof_signal::handler;
use spanprof_signal::signal_claim::{self, ClaimStatus};
use std::sync::atomic::{AtomicU64, Ordering};

fn harmless_clocks() -> impl Iterator<Item = ClockChoice> {
    let has_perf = super::perf::probe(libc::SIGURG).is_ok();
    [ClockChoice::Auto, ClockChoice::ThreadTimer, ClockChoice::Perf]
        .into_iter()
        .filter(move |clock| has_perf || *clock != ClockChoice::Perf)
}

#[test]
fn exec_at_the_highest_rate_never_ends_the_new_program() {
    let _turn = one_at_a_time();
    for clock in harmless_clocks() {
        for turn in 0..25 {
            let status = wait_status_of_child(|| {
                let clocks = start(settings(clock, 10_000));
                clocks.register_current_thread();
                burn(3_000_000 + turn * 40_000);
                exec(c"/bin/true");
            });
            assert_eq!(status, 0, "wait status of `true` after {clock:?}, turn {turn}");
        }
    }
}

fn exec(program: &std::ffi::CStr) {
    let arguments = [program.as_ptr(), std::ptr::null()];
    // SAFETY: replaces the process, or returns; the arguments end with null.
    unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
}

#[test]
fn a_thread_whose_exec_failed_is_sampled_again_and_loses_no_cpu_time() {
    let _turn = one_at_a_time();
    let clocks = start(settings(ClockChoice::Auto, 1_000));
    let (me, accounted_ns) = account_for_thread(|| {
        clocks.register_current_thread();
        for _ in 0..3 {
            burn(50_000_000);
            exec(c"/bin/no-such-program");
            clocks.scan();
        }
        burn(50_000_000);
    });
    let drained = drain(&clocks).remove(&me).unwrap();
    assert_eq!(drained.weight_ns, accounted_ns);
    assert!(accounted_ns > 150_000_000, "{accounted_ns} ns of 200 ms");
}

/// Installs an exit handler for every signal that ends a process by default, as billiard does in each worker of Celery
/// (`TERMSIGS_FULL` in billiard/common.py, 3.6 to 4.2).
fn reset_terminating_signals() {
    extern "C" fn exit(signal: libc::c_int) {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(128 + signal) };
    }
    let terminating = [
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGTRAP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGPIPE,
        libc::SIGALRM,
        libc::SIGTERM,
        libc::SIGSTKFLT,
        libc::SIGXCPU,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
    ];
    for signal in terminating {
        // SAFETY: a plain handler.
        unsafe { libc::signal(signal, exit as *const () as libc::sighandler_t) };
    }
}

#[test]
fn a_worker_with_exit_handlers_for_all_terminating_signals_survives_and_is_sampled() {
    let _turn = one_at_a_time();
    for clock in harmless_clocks() {
        in_child(|| {
            let clocks = start(settings(clock, 1_000));
            reset_terminating_signals();
            clocks.register_current_thread();
            burn(50_000_000);
            assert!(is_sampled(&clocks), "{clock:?}");
        });
    }
}

static HOST_SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn host_handler(_: libc::c_int) {
    HOST_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn host_handles(signal: libc::c_int) {
    // SAFETY: a plain handler that counts.
    unsafe { libc::signal(signal, host_handler as *const () as libc::sighandler_t) };
}

fn is_sampled(clocks: &Clocks) -> bool {
    drain(clocks);
    burn_until(|| clocks.ring().has_committed());
    drain(clocks).contains_key(&thread_id())
}

#[test]
fn a_later_sigurg_handler_stays_and_the_clocks_move_to_the_runtimes_signal() {
    let _turn = one_at_a_time();
    for clock in harmless_clocks() {
        in_child(|| {
            let clocks = start(settings(clock, 250));
            assert_eq!(clocks.in_use().signal, libc::SIGURG);
            host_handles(libc::SIGURG);
            assert_eq!(clocks.check_handlers(), ClaimStatus::Moved(libc::SIGPROF), "{clock:?}");
            assert_eq!(clocks.in_use().signal, libc::SIGPROF);
            assert!(is_sampled(&clocks), "{clock:?}");
            assert!(!handler::is_installed(libc::SIGURG), "the host's handler stays installed");
            let before = HOST_SIGNALS.load(Ordering::Relaxed);
            // SAFETY: sends the host its own signal.
            unsafe { libc::raise(libc::SIGURG) };
            assert_eq!(HOST_SIGNALS.load(Ordering::Relaxed), before + 1);
            drop(clocks);
            let again = start(settings(clock, 250));
            assert_eq!(again.in_use().signal, libc::SIGPROF, "SIGURG remains the host's");
        });
    }
}

#[test]
fn with_a_sigurg_handler_at_start_the_runtimes_signal_is_used() {
    let _turn = one_at_a_time();
    in_child(|| {
        host_handles(libc::SIGURG);
        let clocks = start(settings(ClockChoice::Auto, 250));
        assert_eq!(clocks.in_use().signal, libc::SIGPROF);
        assert!(is_sampled(&clocks));
    });
}

#[test]
fn a_handler_that_replaces_ours_on_the_runtimes_signal_is_chained_and_the_clocks_continue() {
    let _turn = one_at_a_time();
    in_child(|| {
        host_handles(libc::SIGURG);
        let clocks = start(settings(ClockChoice::ThreadTimer, 250));
        host_handles(libc::SIGPROF);
        host_handles(libc::SIGSEGV);
        assert!(!fault_guard_owned());
        assert_eq!(clocks.check_handlers(), ClaimStatus::Reinstalled);
        assert!(fault_guard_owned() && signal_claim::in_use() == libc::SIGPROF);
        assert!(is_sampled(&clocks));
        let before = HOST_SIGNALS.load(Ordering::Relaxed);
        // SAFETY: sends the host its own signals.
        unsafe {
            libc::raise(libc::SIGPROF);
            libc::raise(libc::SIGSEGV);
        }
        assert_eq!(HOST_SIGNALS.load(Ordering::Relaxed), before + 2);
    });
}
