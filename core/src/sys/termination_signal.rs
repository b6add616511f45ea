//! SIGTERM at its default action ends a process at once, and its last window with it. While a profiler runs, a handler wakes
//! the drain thread, which delivers that window and then has the same signal end the process, as the default action would
//! have. Not here: the delivery (`profiler::drain_thread`).
//!
//! A handler of the program stays and comes first. Ours is gone once it was called (SA_RESETHAND), so that a second SIGTERM
//! ends the process at once, and the handler arms a timer that sends that second one: a profiler that hangs delays the end by
//! `LONGEST_DELAY_NS` and no more. The handler makes system calls and stores words; no allocation, no lock.

use super::{inboxes, timer};
use spanprof_signal::forward::current_action;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// From the signal to the end of the process at the latest.
const LONGEST_DELAY_NS: u64 = 250_000_000;

/// Number of the timer that ends the process, plus one; 0 without one. Timers do not survive a fork.
static TIMER: AtomicU32 = AtomicU32::new(0);
static ASKED: AtomicBool = AtomicBool::new(false);

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_termination as *const () as usize
}

/// Has SIGTERM wait for the last window, unless the program handles or ignores it. Called where timers are allowed.
pub fn install_termination_handler() {
    let Some(action) = current_action(libc::SIGTERM) else { return };
    if action.sa_sigaction != libc::SIG_DFL && !is_ours(&action) {
        return;
    }
    if TIMER.load(Ordering::Acquire) == 0 {
        let Ok(id) = timer::create_for_signal(libc::SIGTERM) else { return };
        TIMER.store(id + 1, Ordering::Release);
    }
    set_action(on_termination as *const () as usize, libc::SA_RESTART | libc::SA_RESETHAND | libc::SA_ONSTACK);
}

/// Gives the default action back.
pub fn remove_termination_handler() {
    if current_action(libc::SIGTERM).is_some_and(|action| is_ours(&action)) {
        set_action(libc::SIG_DFL, 0);
    }
    ASKED.store(false, Ordering::Release);
    if let Some(id) = TIMER.swap(0, Ordering::AcqRel).checked_sub(1) {
        timer::delete(id);
    }
}

/// In a forked child: its parent's timer is not here.
pub(super) fn forget_in_child() {
    TIMER.store(0, Ordering::Release);
    ASKED.store(false, Ordering::Release);
}

/// Whether SIGTERM came and waits for [`raise_termination`].
pub fn is_terminating() -> bool {
    ASKED.load(Ordering::Acquire)
}

/// Ends the process by the signal that waits. The kernel does not let that end the first process of a namespace: it goes on,
/// as it does without a profiler.
pub fn raise_termination() {
    // SAFETY: no arguments; the default action is in force since the handler was called.
    unsafe {
        if libc::getpid() != 1 {
            libc::kill(libc::getpid(), libc::SIGTERM);
            return;
        }
    }
    remove_termination_handler();
    install_termination_handler();
}

fn set_action(handler: usize, flags: libc::c_int) {
    // SAFETY: an all-zero sigaction is a valid value; the handler is a plain function of a library that stays loaded.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_termination(signal: libc::c_int) {
    // SAFETY: the address of errno, initialized by the C library for every thread.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let armed = TIMER.load(Ordering::Acquire).checked_sub(1).is_some_and(|id| timer::ring_in(id, LONGEST_DELAY_NS));
    match inboxes::inbox_in_use().filter(|_| armed) {
        Some(inbox) => {
            ASKED.store(true, Ordering::Release);
            inbox.wake();
        }
        // No profiler runs here: a child that was not started, or one that just stops.
        // SAFETY: no memory involved; the default action is in force again.
        None => drop(unsafe { libc::kill(libc::getpid(), signal) }),
    }
    *errno = before;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fork_tests::wait_status_of_child;
    use crate::sys::live_tests::one_at_a_time;
    use std::time::{Duration, Instant};

    fn terminate() {
        // SAFETY: a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
    }

    fn ended_by_sigterm(child: impl FnOnce()) -> bool {
        let status = wait_status_of_child(child);
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM
    }

    #[test]
    fn a_process_whose_drain_thread_hangs_ends_by_the_same_signal_all_the_same() {
        let _turn = one_at_a_time();
        inboxes::use_inbox(inboxes::inbox(1 << 20).unwrap());
        let before = Instant::now();
        assert!(ended_by_sigterm(|| {
            install_termination_handler();
            terminate();
            assert!(is_terminating());
            std::thread::sleep(Duration::from_secs(30));
        }));
        assert!(before.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_second_signal_and_one_without_a_profiler_end_the_process_at_once() {
        let _turn = one_at_a_time();
        assert!(ended_by_sigterm(|| {
            install_termination_handler();
            terminate();
            terminate();
            std::process::abort();
        }));
        assert!(ended_by_sigterm(|| {
            install_termination_handler();
            forget_in_child();
            terminate();
            std::process::abort();
        }));
        assert!(ended_by_sigterm(|| {
            install_termination_handler();
            remove_termination_handler();
            terminate();
            std::process::abort();
        }));
    }

    #[test]
    fn a_program_that_ignores_the_signal_goes_on_ignoring_it() {
        let _turn = one_at_a_time();
        let status = wait_status_of_child(|| {
            set_action(libc::SIG_IGN, 0);
            install_termination_handler();
            terminate();
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
    }
}
