//! Standard error, for lines that no logger of the host receives. A program may close descriptor 2, and the next file that it opens gets
//! this number. So a line is written only while the descriptor refers to the file of the beginning. It waits for no lock and not
//! longer than [`MAX_WAIT_MS`] for a full pipe. Not in signal handlers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Greatest wait for a reader of a full pipe.
const MAX_WAIT_MS: libc::c_int = 500;
/// A longer line could block, since a pipe is writable when it has room for this number of bytes.
const MAX_LINE_BYTES: usize = libc::PIPE_BUF;

static IS_REMEMBERED: AtomicBool = AtomicBool::new(false);
/// Device and inode of the file of the beginning; inode 0: none.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Takes the file at descriptor 2 for standard error; later calls have no effect. Called as early as possible.
pub fn remember_standard_error() {
    if !IS_REMEMBERED.swap(true, Ordering::Relaxed) {
        let (device, inode) = file_for_writing().unwrap_or_default();
        DEVICE.store(device, Ordering::Relaxed);
        INODE.store(inode, Ordering::Relaxed);
    }
}

/// The program has no standard error, whatever descriptor 2 refers to.
pub fn forget_standard_error() {
    IS_REMEMBERED.store(true, Ordering::Relaxed);
    INODE.store(0, Ordering::Relaxed);
}

/// Whether descriptor 2 still is standard error.
pub fn has_standard_error() -> bool {
    let remembered = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    remembered.1 != 0 && file_for_writing() == Some(remembered)
}

/// Writes a line to standard error; false if it is closed, replaced or not read.
pub fn write_to_standard_error(line: &str) -> bool {
    let mut bytes = line.as_bytes()[..line.len().min(MAX_LINE_BYTES - 1)].to_vec();
    bytes.push(b'\n');
    let mut descriptor = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: poll changes one structure, and write reads the bytes of a live vector.
    unsafe {
        has_standard_error()
            && libc::poll(&mut descriptor, 1, MAX_WAIT_MS) == 1
            // A pipe without a reader has an error too; a write would raise SIGPIPE.
            && descriptor.revents == libc::POLLOUT
            && libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) > 0
    }
}

/// Device and inode of the file at descriptor 2, if it is open for writing.
fn file_for_writing() -> Option<(u64, u64)> {
    // SAFETY: fcntl reads the flags of a descriptor; fstat fills the structure if it succeeds, and zero is a valid value of it.
    unsafe {
        let flags = libc::fcntl(libc::STDERR_FILENO, libc::F_GETFL);
        let mut status: libc::stat = std::mem::zeroed();
        let is_writable = flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
        (is_writable && libc::fstat(libc::STDERR_FILENO, &mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_child;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd};

    /// The two ends of a pipe of which the second is standard error.
    fn piped() -> File {
        let mut ends = [0; 2];
        // SAFETY: the array has room for both descriptors, which nothing else owns.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::dup2(ends[1], libc::STDERR_FILENO), libc::STDERR_FILENO);
            libc::close(ends[1]);
            File::from_raw_fd(ends[0])
        }
    }

    #[test]
    fn a_line_is_written_to_the_file_of_the_beginning_only() {
        in_child(|| {
            let mut reader = piped();
            assert!(!write_to_standard_error("too early"));
            remember_standard_error();
            assert!(write_to_standard_error("a line"));
            // SAFETY: another file takes the number, as `open` after `close(2)` would.
            unsafe { libc::dup2(File::create("/dev/null").unwrap().as_raw_fd(), libc::STDERR_FILENO) };
            assert!(!has_standard_error() && !write_to_standard_error("to another file"));
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "a line\n");
        });
    }

    #[test]
    fn a_pipe_that_is_full_or_has_no_reader_neither_blocks_nor_ends_the_process() {
        in_child(|| {
            let reader = piped();
            remember_standard_error();
            let long = "x".repeat(2 * MAX_LINE_BYTES);
            while write_to_standard_error(&long) {}
            drop(reader);
            // SAFETY: the default action of the signal would end this process.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            assert!(!write_to_standard_error("not read"));
        });
    }
}
