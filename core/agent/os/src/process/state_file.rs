//! Rules of the files that hold state of this process beyond its death: the lock of their owner, and the limit of file
//! sizes.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Whether the limit of file sizes permits a file of `bytes`: a write beyond the limit ends the host.
pub(crate) fn file_size_allows(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit to a local.
    let succeeded = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    #[allow(clippy::unnecessary_cast)] // Its width differs between systems.
    let limit = limit.rlim_cur as u64;
    succeeded && limit >= bytes
}

/// Takes a process-owned lock: not inherited by forked children, released on death and when the process closes any
/// descriptor of the file.
pub(crate) fn lock(file: &File) -> bool {
    // SAFETY: an all-zero flock is a valid value: from the start of the file, its whole length.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open; the kernel reads the flock.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &whole) == 0 }
}
