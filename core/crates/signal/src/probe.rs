//! Makes system calls in a child process, to find out which of them a seccomp filter lets live. Normal threads only.
//!
//! The child is a bare `clone` without an exit signal: it shares no memory, no SIGCHLD is sent, and no `wait` of the host
//! for its own children returns it (`__WCLONE`, wait(2)).

use core::sync::atomic::{AtomicU64, Ordering};

/// Whether a seccomp filter is in force for the calling thread, or that cannot be known. The threads that it makes inherit it;
/// `/proc/self` would show that of the first thread. `prctl(PR_GET_SECCOMP)` may itself be a call that a filter
/// punishes.
pub fn is_filtered() -> bool {
    // SAFETY: opens a file to be read; the path ends with a null.
    let file = unsafe { libc::open(c"/proc/thread-self/status".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return true;
    }
    let mut mode = SeccompMode::default();
    let mut piece = [0u8; 512];
    loop {
        // SAFETY: the kernel writes into a local of this length.
        let count = unsafe { libc::read(file, piece.as_mut_ptr().cast(), piece.len()) };
        let Some(read) = usize::try_from(count).ok().filter(|read| *read > 0) else { break };
        piece.iter().take(read).for_each(|byte| mode.read(*byte));
    }
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    mode.value != Some(b'0')
}

/// Finds the line `Seccomp:` of a file that is read byte by byte.
#[derive(Default)]
struct SeccompMode {
    /// How many bytes of [`SeccompMode::NAME`] the current line begins with, its line break included.
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

/// The groups of system calls, by their numbers, that a child survived: bit 0 for the first group, 64 groups at most. All
/// calls have arguments that the kernel refuses, or that do nothing. Each child goes on behind the group that ended the
/// one before. Without memory or without a child, none.
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
    // SAFETY: a page of our own that nobody else refers to any more.
    unsafe { libc::munmap((survived as *const AtomicU64).cast_mut().cast(), size_of::<AtomicU64>()) };
    result
}

/// A zeroed word that a child shares.
fn shared_word() -> Option<&'static AtomicU64> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new memory; a zeroed page is a valid atomic word.
    unsafe {
        let page = libc::mmap(core::ptr::null_mut(), size_of::<AtomicU64>(), protection, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        page.cast::<AtomicU64>().as_ref()
    }
}

/// Makes the calls one after the other in a child that counts the groups it survived, and waits for its end. False when
/// there was no child.
fn run_in_child(groups: &[&[libc::c_long]], survived: &AtomicU64) -> bool {
    // SAFETY: without flags the child is a copy of this thread alone, with memory of its own. Until it ends it makes bare
    // system calls and writes to its stack and to the shared word: no lock, no allocation, no thread-local but errno.
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
    // No core file of a child that a filter ended: 1 is below the smallest, and forbids pipes (fs/coredump.c).
    let least = libc::rlimit64 { rlim_cur: 1, rlim_max: 1 };
    let none = core::ptr::null_mut::<libc::rlimit64>();
    // SAFETY: the kernel reads a local.
    unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &raw const least, none) };
    for group in groups {
        for number in *group {
            // SAFETY: no pointer is valid and no descriptor or id is one, so that nothing is changed.
            unsafe { libc::syscall(*number, -1, 0, 0, 0, 0, 0) };
        }
        survived.fetch_add(1, Ordering::Release);
    }
}

/// Waits for our own child, by its id and with the flag that only children without an exit signal need.
fn wait_for(child: libc::pid_t) {
    const TURNS: u32 = 20_000;
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
    for turn in 0..=TURNS {
        if turn == TURNS {
            // A filter that asks a supervisor may keep it waiting: what it did not survive by now is not used.
            // SAFETY: our own child, which nobody else can have waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        let flags = libc::__WALL | if turn < TURNS { libc::WNOHANG } else { 0 };
        let mut status = 0;
        // SAFETY: the kernel writes an int to a local, and reads one timespec; errno of this thread.
        unsafe {
            match libc::syscall(libc::SYS_wait4, child, &raw mut status, flags, 0) {
                0 => drop(libc::nanosleep(&moment, core::ptr::null_mut())),
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
    fn the_mode_is_that_of_its_own_line() {
        let status = "Name:\tSeccomp: 7\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t5\n";
        assert_eq!(mode(status), Some('2'));
        assert_eq!(mode("Name:\tx\nSeccomp:\t0\n"), Some('0'));
        assert_eq!(mode("Name:\tx\nSeccomp_filters:\t0\nSpeculation:\t1\n"), None);
    }
}
