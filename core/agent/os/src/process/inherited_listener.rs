//! Closes the listening socket of pulls in forked children. While a child has it open, the system queues connections there
//! that nobody accepts. Async-signal-safe: called by the fork hook.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

static NUMBER: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Registers the descriptor, with device and inode of its file.
pub fn close_in_children(number: RawFd, (device, inode): (u64, u64)) {
    NUMBER.store(-1, Ordering::Release);
    DEVICE.store(device, Ordering::Relaxed);
    INODE.store(inode, Ordering::Relaxed);
    NUMBER.store(number, Ordering::Release);
}

/// Removes it before it is closed.
pub fn forget_close_in_children() {
    NUMBER.store(-1, Ordering::Release);
}

/// Closes the descriptor unless the program has replaced it.
pub(crate) fn reset_in_child() {
    let number = NUMBER.swap(-1, Ordering::AcqRel);
    if number < 0 {
        return;
    }
    // SAFETY: an all-zero stat is a valid value to be written over; fstat accepts any number; close is called only while the
    // number refers to the socket of this library, which no code of the child uses: its threads do not exist here.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let is_ours = libc::fstat(number, &mut stat) == 0
            && (stat.st_dev, stat.st_ino) == (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
        if is_ours {
            libc::close(number);
        }
    }
}
