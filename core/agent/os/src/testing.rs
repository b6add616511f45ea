//! Support for tests: forked children, seccomp filters, and the turn of tests that start clocks.

use crate::system_calls::{CallRefusal, SystemCall};
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

/// Installs a seccomp filter in this thread that refuses a call. Processes that the thread starts inherit it.
pub fn refuse_call(call: SystemCall, refusal: CallRefusal) {
    install_filter(call.numbers()[0], refusal);
}

/// As [`refuse_call`], by the number of the call.
pub(crate) fn install_filter(number: libc::c_long, refusal: CallRefusal) {
    let action = match refusal {
        CallRefusal::EndsProcess => 0x8000_0000,
        CallRefusal::Errno(errno) => 0x0005_0000 | errno as u32,
    };
    let filter = [
        // Load the number; if it is not this one, skip one; the action; allow.
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: number as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: action },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel reads and copies the local filter program.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// Stops the other threads of a test on drop, also after a failed assertion: a scope joins all of them.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
