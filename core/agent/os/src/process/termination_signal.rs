//! Delivers the last window at SIGTERM, whose default action would end the process at once. While a profiler runs, a
//! handler wakes the drain thread. That thread delivers the window, then raises the same signal, which ends the
//! process by default. Not here: the delivery (`profiler::drain_thread`).
//!
//! A handler of the program stays and takes precedence, also one that is installed later and calls ours. A handler of the
//! language's runtime that only ends the process runs after the delivery. Our handler is removed when called
//! (SA_RESETHAND), so a second SIGTERM ends the process at once. It arms a timer that sends the second one: a profiler that
//! hangs delays the end by at most `LONGEST_DELAY_NS`. The handler makes system calls and stores words; no allocation, no
//! lock.

use crate::memory::inboxes;
use crate::timer;
use spanprof_signal::arm;
use spanprof_signal::forward::current_action;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Maximum time from the signal to the end of the process.
const LONGEST_DELAY_NS: u64 = 1_000_000_000;

/// Id of the timer that ends the process, plus one; 0 without one. Timers do not survive a fork.
static TIMER: AtomicU32 = AtomicU32::new(0);
static PENDING: AtomicBool = AtomicBool::new(false);

/// The action that ours replaced.
static REPLACED: ReplacedAction = ReplacedAction { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) };

struct ReplacedAction {
    handler: AtomicUsize,
    flags: AtomicI32,
}

impl ReplacedAction {
    fn store(&self, action: &libc::sigaction) {
        self.handler.store(action.sa_sigaction, Ordering::Release);
        self.flags.store(action.sa_flags, Ordering::Release);
    }

    fn restore(&self) {
        set_action(self.handler.load(Ordering::Acquire), self.flags.load(Ordering::Acquire));
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_termination as *const () as usize
}

/// Installs the SIGTERM handler in place of the default action or of `runtime_handler`, a handler of the language's
/// runtime that ends the process. Any other action stays. Called where timers are allowed.
pub fn install_termination_handler(runtime_handler: libc::sighandler_t) {
    let Some(action) = current_action(libc::SIGTERM) else { return };
    if !is_ours(&action) {
        if ![libc::SIG_DFL, runtime_handler].contains(&action.sa_sigaction) {
            return;
        }
        REPLACED.store(&action);
    }
    if TIMER.load(Ordering::Acquire) == 0 {
        let Ok(id) = timer::create_for_signal(libc::SIGTERM) else { return };
        TIMER.store(id + 1, Ordering::Release);
    }
    set_action(on_termination as *const () as usize, libc::SA_RESTART | libc::SA_RESETHAND | libc::SA_ONSTACK);
}

/// Restores the action that ours replaced.
pub fn remove_termination_handler() {
    if current_action(libc::SIGTERM).is_some_and(|action| is_ours(&action)) {
        REPLACED.restore();
    }
    PENDING.store(false, Ordering::Release);
    if let Some(id) = TIMER.swap(0, Ordering::AcqRel).checked_sub(1) {
        arm::delete_timer(id);
    }
}

/// Resets the state in a forked child, which does not inherit the timer.
pub(crate) fn reset_in_child() {
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
    // SAFETY: no pointers.
    let is_init = unsafe { libc::getpid() } == 1;
    if is_init {
        remove_termination_handler();
    }
    // SAFETY: no pointers; the replaced action is in force since the handler was called.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
    if is_init {
        install_termination_handler(libc::SIG_DFL);
    }
}

/// Installs `handler`, which blocks every signal. Node.js's handler does too, so its action can be restored by this call.
fn set_action(handler: usize, flags: libc::c_int) {
    // SAFETY: an all-zero sigaction is a valid value; the handler is a function of a library that stays loaded.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_termination(signal: libc::c_int) {
    // SAFETY: errno of this thread, at an address that the C library keeps valid.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    // The kernel has restored the default action, unless the program removed SA_RESETHAND: `signal(2)` with the handler that
    // it returned before. Under any other action a handler of the program called its predecessor, as those of signal-hook
    // and tokio do: the program handles the signal.
    if current_action(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL || is_ours(&action)) {
        REPLACED.restore();
        let armed =
            TIMER.load(Ordering::Acquire).checked_sub(1).is_some_and(|id| timer::arm_once(id, LONGEST_DELAY_NS));
        match inboxes::inbox_in_use().filter(|_| armed && !PENDING.swap(true, Ordering::AcqRel)) {
            Some(inbox) => inbox.wake(),
            // No profiler runs in this process (an unprofiled child, or a profiler that is stopping), or a handler of the
            // program called this one again.
            // SAFETY: no pointers; the replaced action is in force.
            None => drop(unsafe { libc::kill(libc::getpid(), signal) }),
        }
    }
    *errno = before;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_child, one_at_a_time, wait_status_of_child};
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
            install_termination_handler(libc::SIG_DFL);
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
            install_termination_handler(libc::SIG_DFL);
            terminate();
            terminate();
            std::process::abort();
        }));
        assert!(ended_by_sigterm(|| {
            install_termination_handler(libc::SIG_DFL);
            reset_in_child();
            terminate();
            std::process::abort();
        }));
        assert!(ended_by_sigterm(|| {
            install_termination_handler(libc::SIG_DFL);
            remove_termination_handler();
            terminate();
            std::process::abort();
        }));
    }

    const DELAYED: libc::c_int = 9;
    const AT_ONCE: libc::c_int = 8;

    extern "C" fn exit_by_handler(_signal: libc::c_int) {
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_terminating() { DELAYED } else { AT_ONCE }) };
    }

    #[test]
    fn a_handler_of_the_runtime_runs_when_a_hanging_delivery_ends_and_any_other_handler_stays() {
        let _turn = one_at_a_time();
        inboxes::use_inbox(inboxes::inbox(1 << 20).unwrap());
        let handler = exit_by_handler as *const () as usize;
        for (runtime_handler, end) in [(handler, DELAYED), (libc::SIG_DFL, AT_ONCE)] {
            let status = wait_status_of_child(|| {
                set_action(handler, libc::SA_RESETHAND);
                install_termination_handler(runtime_handler);
                terminate();
                std::thread::sleep(Duration::from_secs(30));
            });
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == end, "{status}");
        }
    }

    #[test]
    fn a_stopped_profiler_leaves_the_handler_of_the_runtime_as_it_was() {
        let _turn = one_at_a_time();
        in_child(|| {
            set_action(exit_by_handler as *const () as usize, libc::SA_RESETHAND);
            let before = current_action(libc::SIGTERM).unwrap();
            install_termination_handler(before.sa_sigaction);
            assert!(is_ours(&current_action(libc::SIGTERM).unwrap()));
            remove_termination_handler();
            let after = current_action(libc::SIGTERM).unwrap();
            assert_eq!((after.sa_sigaction, after.sa_flags), (before.sa_sigaction, before.sa_flags));
        });
    }

    extern "C" fn call_predecessor(signal: libc::c_int) {
        on_termination(signal);
    }

    #[test]
    fn a_later_handler_of_the_program_that_calls_its_predecessor_decides_the_end() {
        let _turn = one_at_a_time();
        inboxes::use_inbox(inboxes::inbox(1 << 20).unwrap());
        in_child(|| {
            install_termination_handler(libc::SIG_DFL);
            set_action(call_predecessor as *const () as usize, 0);
            terminate();
            terminate();
            assert!(!is_terminating());
        });
    }

    #[test]
    fn a_program_that_restores_the_handler_by_signal_2_and_raises_still_ends_by_the_signal() {
        let _turn = one_at_a_time();
        inboxes::use_inbox(inboxes::inbox(1 << 20).unwrap());
        assert!(ended_by_sigterm(|| {
            install_termination_handler(libc::SIG_DFL);
            // SAFETY: sets actions whose handlers are functions of this program, or the default.
            unsafe {
                let ours = libc::signal(libc::SIGTERM, libc::SIG_IGN);
                libc::signal(libc::SIGTERM, ours);
            }
            terminate();
            assert!(is_terminating());
            std::thread::sleep(Duration::from_secs(30));
        }));
    }

    #[test]
    fn a_program_that_ignores_the_signal_continues_to_ignore_it() {
        let _turn = one_at_a_time();
        let status = wait_status_of_child(|| {
            set_action(libc::SIG_IGN, 0);
            install_termination_handler(libc::SIG_DFL);
            terminate();
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
    }
}
