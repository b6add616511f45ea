//! Delivers the last window at SIGTERM, whose default action would end the process at once. While a profiler runs, a
//! handler wakes the drain thread. That thread delivers the window, then raises the same signal, which ends the
//! process by default. Not here: the delivery (`profiler::drain_thread`).
//!
//! A handler of the program stays and takes precedence. Our handler is removed when called (SA_RESETHAND), so a
//! second SIGTERM ends the process at once. It arms a timer that sends the second one: a profiler that hangs delays
//! the end by at most `LONGEST_DELAY_NS`. The handler makes system calls and stores words; no allocation, no lock.

use super::{inboxes, timer};
use spanprof_signal::forward::current_action;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Maximum time from the signal to the end of the process.
const LONGEST_DELAY_NS: u64 = 250_000_000;

/// Id of the timer that ends the process, plus one; 0 without one. Timers do not survive a fork.
static TIMER: AtomicU32 = AtomicU32::new(0);
static PENDING: AtomicBool = AtomicBool::new(false);

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_termination as *const () as usize
}

/// Installs the SIGTERM handler, unless the program handles or ignores the signal. Called where timers are allowed.
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

/// Restores the default action.
pub fn remove_termination_handler() {
    if current_action(libc::SIGTERM).is_some_and(|action| is_ours(&action)) {
        set_action(libc::SIG_DFL, 0);
    }
    PENDING.store(false, Ordering::Release);
    if let Some(id) = TIMER.swap(0, Ordering::AcqRel).checked_sub(1) {
        timer::delete(id);
    }
}

/// Resets the state in a forked child, which does not inherit the timer.
pub(super) fn reset_in_child() {
    TIMER.store(0, Ordering::Release);
    PENDING.store(false, Ordering::Release);
}

/// Whether SIGTERM is pending for [`raise_termination`].
pub fn is_terminating() -> bool {
    PENDING.load(Ordering::Acquire)
}

/// Ends the process by the pending signal. The kernel does not let SIGTERM end the first process of a PID namespace:
/// that process continues, as without a profiler.
pub fn raise_termination() {
    // SAFETY: no pointers; the default action is installed since the handler was called.
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
    // SAFETY: an all-zero sigaction is a valid value; the handler is a function of a library that stays loaded.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_termination(signal: libc::c_int) {
    // SAFETY: errno of this thread, at an address that the C library keeps valid.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let armed = TIMER.load(Ordering::Acquire).checked_sub(1).is_some_and(|id| timer::arm_once(id, LONGEST_DELAY_NS));
    match inboxes::inbox_in_use().filter(|_| armed) {
        Some(inbox) => {
            PENDING.store(true, Ordering::Release);
            inbox.wake();
        }
        // No profiler runs in this process: an unprofiled child, or a profiler that is stopping.
        // SAFETY: no pointers; the default action is installed again.
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
    fn a_process_with_a_hanging_drain_thread_still_ends_by_the_signal() {
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
    fn a_second_signal_or_one_without_a_profiler_ends_the_process_at_once() {
        let _turn = one_at_a_time();
        assert!(ended_by_sigterm(|| {
            install_termination_handler();
            terminate();
            terminate();
            std::process::abort();
        }));
        assert!(ended_by_sigterm(|| {
            install_termination_handler();
            reset_in_child();
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
    fn a_program_that_ignores_the_signal_continues_to_ignore_it() {
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
