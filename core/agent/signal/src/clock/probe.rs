//! Probes system calls in a child process, to find those that a seccomp filter allows. Normal threads only.
//!
//! The child is a bare `clone` without an exit signal: it shares no memory and sends no SIGCHLD. A `wait` of the host
//! for its own children does not return it (`__WCLONE`, wait(2)).

use core::sync::atomic::{AtomicU64, Ordering};

/// Whether a seccomp filter is in force for the calling thread; true when unknown. New threads inherit the filter of
/// their creator, while `/proc/self` shows that of the first thread. The filter may forbid `prctl(PR_GET_SECCOMP)`
/// itself.
pub fn is_filtered() -> bool {
    // SAFETY: opens a file for reading; the path is NUL-terminated.
    let file = unsafe { libc::open(c"/proc/thread-self/status".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return true;
    }
    let mut mode = SeccompMode::default();
    let mut chunk = [0u8; 512];
    loop {
        // SAFETY: the kernel writes at most `chunk.len()` bytes to a local.
        let count = unsafe { libc::read(file, chunk.as_mut_ptr().cast(), chunk.len()) };
        let Some(read) = usize::try_from(count).ok().filter(|read| *read > 0) else { break };
        chunk.iter().take(read).for_each(|byte| mode.read(*byte));
    }
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    mode.value != Some(b'0')
}

/// Finds the value of the line `Seccomp:` in a file that is read byte by byte.
#[derive(Default)]
struct SeccompMode {
    /// Bytes of [`SeccompMode::NAME`] matched so far, including its leading line break.
    matched: usize,
    /// The first character of the value.
    value: Option<u8>,
}

impl SeccompMode {
    const NAME: &[u8] = b"\nSeccomp:";

    fn read(&mut self, byte: u8) {
        if self.value.is_some() {
        } else if self.matched == Self::NAME.len() {
            self.value = (!byte.is_ascii_whitespace()).then_some(byte);
        } else if Self::NAME.get(self.matched) == Some(&byte) {
            self.matched += 1;
        } else {
            self.matched = usize::from(byte == b'\n');
        }
    }
}

/// Returns the groups of system calls that a child survived: bit 0 for the first group, at most 64 groups. All
/// arguments are invalid or without effect. A new child continues after the group that ended the previous one. Returns
/// 0 if no memory or no child can be created.
pub fn surviving(groups: &[&[libc::c_long]]) -> u64 {
    let Some(survived) = shared_word() else { return 0 };
    let mut result = 0;
    let mut next = 0;
    while let Some(rest) = groups.get(next..).filter(|rest| !rest.is_empty()) {
        survived.store(0, Ordering::Relaxed);
        if !run_in_child(rest, survived) {
            break;
        }
        let count = survived.load(Ordering::Acquire) as usize;
        result |= ((1 << count) - 1) << next;
        next += count + 1;
    }
    // SAFETY: a page mapped by `shared_word`, without any other reference left.
    unsafe { libc::munmap((survived as *const AtomicU64).cast_mut().cast(), size_of::<AtomicU64>()) };
    result
}

/// A zeroed word shared with child processes.
fn shared_word() -> Option<&'static AtomicU64> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: maps new memory; a zeroed page is a valid atomic word.
    unsafe {
        let page = libc::mmap(core::ptr::null_mut(), size_of::<AtomicU64>(), protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        page.cast::<AtomicU64>().as_ref()
    }
}

/// Makes the calls in a child, which counts the groups that it survived, and waits until the child ends. False if no
/// child can be created.
fn run_in_child(groups: &[&[libc::c_long]], survived: &AtomicU64) -> bool {
    // SAFETY: without flags the child is a copy of this thread alone, with memory of its own. Until it ends it makes
    // bare system calls and writes to its stack and the shared word: no lock, no allocation, no thread-local storage
    // but errno.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            make_calls(groups, survived);
            libc::syscall(libc::SYS_exit_group, 0);
        }
        if child < 0 {
            return false;
        }
        wait_for(child as libc::pid_t);
    }
    true
}

fn make_calls(groups: &[&[libc::c_long]], survived: &AtomicU64) {
    // Prevents a core file of the child: the limit 1 is below the smallest core file and excludes pipes
    // (fs/coredump.c).
    let limit = libc::rlimit64 { rlim_cur: 1, rlim_max: 1 };
    let none = core::ptr::null_mut::<libc::rlimit64>();
    // SAFETY: the kernel reads a local.
    unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &raw const limit, none) };
    for group in groups {
        for number in *group {
            // SAFETY: no argument is a valid pointer, descriptor or id, so the call changes nothing.
            unsafe { libc::syscall(*number, -1, 0, 0, 0, 0, 0) };
        }
        survived.fetch_add(1, Ordering::Release);
    }
}

/// Waits for the child by its id, with the flag that children without an exit signal require.
fn wait_for(child: libc::pid_t) {
    const MAX_POLLS: u32 = 20_000;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
    for poll in 0..=MAX_POLLS {
        if poll == MAX_POLLS {
            // A filter with a supervisor may block the child: a call without a result by now counts as forbidden.
            // SAFETY: our own child, not yet waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        let flags = libc::__WALL | if poll < MAX_POLLS { libc::WNOHANG } else { 0 };
        let mut status = 0;
        // SAFETY: the kernel writes an int to a local, and reads one timespec; errno of this thread.
        unsafe {
            match libc::syscall(libc::SYS_wait4, child, &raw mut status, flags, 0) {
                0 => drop(libc::nanosleep(&pause, core::ptr::null_mut())),
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => return,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::SeccompMode;

    fn mode(text: &str) -> Option<char> {
        let mut mode = SeccompMode::default();
        text.bytes().for_each(|byte| mode.read(byte));
        mode.value.map(char::from)
    }

    #[test]
    fn only_the_seccomp_line_gives_the_mode() {
        let status = "Name:\tSeccomp: 7\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t5\n";
        assert_eq!(mode(status), Some('2'));
        assert_eq!(mode("Name:\tx\nSeccomp:\t0\n"), Some('0'));
        assert_eq!(mode("Name:\tx\nSeccomp_filters:\t0\nSpeculation:\t1\n"), None);
    }
}
