//! Support for tests: forked children, and the turn of tests that start clocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Serializes the tests that start clocks, which are one per process.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs `child` in a forked process, which must exit with status 0.
pub fn in_child(child: impl FnOnce()) {
    assert_eq!(wait_status_of_child(child), 0, "the child's wait status");
}

/// Runs `child` in a forked process that must end within two minutes; returns its wait status. The limit only ends hanging
/// children: some tests use a CPU for seconds, which take a multiple of that on an oversubscribed machine.
pub fn wait_status_of_child(child: impl FnOnce()) -> libc::c_int {
    // SAFETY: the child runs `child` on its only thread, then exits by _exit; the C library's allocator supports forks.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
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

/// Stops the other threads of a test on drop, also after a failed assertion: a scope joins all of them.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
