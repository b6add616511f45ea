//! The guarantees of the handlers towards the host, with real signals and real faults in this process. Tests that change
//! process-wide state run one at a time.

mod clock_handler;
mod fault_guard;
mod no_allocation;
mod stack_space;

use std::sync::{Mutex, MutexGuard};

#[global_allocator]
static ALLOCATOR: no_allocation::CountingAllocator = no_allocation::CountingAllocator;

/// Signal handlers belong to the process: one test at a time.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs `child` in a forked process that must end within two minutes; returns its wait status. The child ends with `_exit`.
fn status_of_child(child: impl FnOnce()) -> libc::c_int {
    // SAFETY: the child runs `child` on its only thread and exits by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_err();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(failed as libc::c_int) };
    }
    let mut status = 0;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while std::time::Instant::now() < until {
        // SAFETY: waits for the child created above; writes one int to a local.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            return status;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // SAFETY: the child created above, which hangs.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &mut status, 0);
    }
    panic!("the child hangs");
}

/// Installs a handler as a host would; returns the previous action.
fn host_installs(signal: libc::c_int, handler: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: all-zero actions are valid; the handlers of these tests have the signature that their flags require.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, &mut old), 0);
        old
    }
}
