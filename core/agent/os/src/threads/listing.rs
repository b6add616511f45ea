//! The threads of this process in /proc: ids, names, count. Reads files: never called in a handler.

use crate::system_calls::{self, SystemCall};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Kernel id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments, no failure.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Appends the id of every thread of the process. False when /proc is hidden or of another PID namespace.
pub fn thread_ids(out: &mut Vec<u32>) -> bool {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return false };
    let before = out.len();
    out.extend(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()));
    out.get(before..).is_some_and(|listed| listed.contains(&thread_id()))
}

/// The number of threads, by one cheap call; `None` when /proc is hidden. The task directory has a link for each
/// thread and two of its own (`proc_task_getattr` in the kernel's fs/proc/base.c).
pub fn thread_count() -> Option<u64> {
    fs::metadata("/proc/self/task").ok().map(|directory| directory.nlink())
}

/// The thread's name; `None` when it ended or /proc is hidden.
pub fn thread_name(thread_id: u32) -> Option<String> {
    let name = fs::read(format!("/proc/self/task/{thread_id}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

/// Whether `signal` is pending for a thread that blocks it; false when unknown. A thread inside one of our handlers
/// blocks it as well, but only a signal that waits is pending.
pub(crate) fn holds_back_signal(thread_id: u32, signal: libc::c_int) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/self/task/{thread_id}/status")) else { return false };
    let contains = |field: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(field));
        let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
    };
    contains("SigBlk:") && contains("SigPnd:")
}

/// Unblocks `signal` in the calling thread.
pub(crate) fn unblock_signal(signal: libc::c_int) {
    // SAFETY: an all-zero set is a valid value; both calls access a local and this thread's own mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Names the calling thread; the kernel keeps 15 bytes.
pub fn name_current_thread(name: &std::ffi::CStr) {
    if system_calls::may_use(SystemCall::Prctl) {
        // SAFETY: PR_SET_NAME reads a NUL-terminated string.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Blocks `signal` in the calling thread.
#[cfg(test)]
pub(crate) fn block_signal(signal: libc::c_int) {
    // SAFETY: an all-zero set is a valid value; both calls access a local and this thread's own mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_threads_contains_the_calling_thread() {
        let mut ids = Vec::new();
        assert!(thread_ids(&mut ids));
        assert!(ids.contains(&thread_id()));
    }

    #[test]
    fn the_thread_count_includes_waiting_threads() {
        let _turn = crate::testing::one_at_a_time();
        // Other tests start and end threads meanwhile, fewer than three hundred.
        let before = thread_count().unwrap();
        let mutex = std::sync::Mutex::new(());
        std::thread::scope(|scope| {
            let held = mutex.lock().unwrap();
            for _ in 0..300 {
                scope.spawn(|| drop(mutex.lock()));
            }
            let now = thread_count();
            drop(held);
            assert!(now.unwrap() > before + 200, "{now:?} after {before}");
        });
    }

    #[test]
    fn a_named_thread_is_found_under_its_name() {
        std::thread::spawn(|| {
            name_current_thread(c"weaver");
            assert_eq!(thread_name(thread_id()).as_deref(), Some("weaver"));
        })
        .join()
        .unwrap();
    }
}
