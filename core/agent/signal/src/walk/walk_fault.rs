//! Records that the process faulted inside one of our stack walks, in a file that outlives it, for the next start.
//! Only the fault handler writes, and only on a fault. `spanprof-os` chooses the file and interprets it; without a file
//! nothing is recorded. Safe in handlers.
//!
//! Nothing is written in normal operation: a store to a mapped word in each walk can fault (truncated file) or block
//! (write-back), and a process that is killed during a walk would look like a crash. The descriptor is checked by `fstat`, since
//! a host may close it.

use crate::signals::forward::thread_id;
use crate::signals::slot_table::is_in_tick;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

static FILE: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
static OFFSET: AtomicU64 = AtomicU64::new(0);
/// The thread that walks another one, if any: there is one wall sampler.
static WALKING_THREAD: AtomicU32 = AtomicU32::new(0);

/// Four bytes at an offset of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWord {
    pub descriptor: i32,
    /// Device and inode at the time of opening: a host may close unknown descriptors and open its own files under
    /// their numbers.
    pub identity: (u64, u64),
    /// Offset in the file, bytes.
    pub offset: u64,
}

impl FileWord {
    /// Writes the four bytes. False if the write fails or the descriptor no longer refers to that file.
    /// Async-signal-safe; may change errno.
    pub fn write(&self, word: u32) -> bool {
        if identity(self.descriptor) != Some(self.identity) {
            return false;
        }
        let offset = self.offset as libc::off_t;
        // SAFETY: the kernel reads four bytes of a local; the descriptor was just verified to be our file.
        unsafe { libc::pwrite(self.descriptor, (&raw const word).cast(), 4, offset) == 4 }
    }
}

/// Device and inode of an open file. Async-signal-safe; may change errno.
pub fn identity(descriptor: i32) -> Option<(u64, u64)> {
    // SAFETY: an all-zero stat is a valid value to be written over.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes one stat to a local; the kernel rejects an invalid descriptor.
    let succeeded = unsafe { libc::fstat(descriptor, &mut status) } == 0;
    #[allow(clippy::unnecessary_cast)] // Their widths differ between systems.
    succeeded.then_some((status.st_dev as u64, status.st_ino as u64))
}

/// Sets the location at which faults in walks are recorded; `None` records nothing. Allocates nothing, takes no lock.
/// Normal threads only, one at a time.
pub fn set_report_location(location: Option<FileWord>) {
    FILE.store(-1, Ordering::Release);
    if let Some(location) = location {
        DEVICE.store(location.identity.0, Ordering::Relaxed);
        INODE.store(location.identity.1, Ordering::Relaxed);
        OFFSET.store(location.offset, Ordering::Relaxed);
        FILE.store(location.descriptor, Ordering::Release);
    }
}

/// Records a fault of the calling thread, if it is inside a walk. Called by the fault handler for faults outside
/// guarded reads; may change errno.
pub(crate) fn report_fault() {
    let descriptor = FILE.load(Ordering::Acquire);
    if descriptor < 0 || !is_walking(thread_id()) {
        return;
    }
    let identity = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    FileWord { descriptor, identity, offset: OFFSET.load(Ordering::Relaxed) }.write(1);
}

fn is_walking(thread_id: u32) -> bool {
    WALKING_THREAD.load(Ordering::Relaxed) == thread_id || is_in_tick(thread_id)
}

/// Marks a walk of another thread, on the calling thread, until dropped. Walks inside the clock handler need none:
/// the slot marks them.
pub struct WalkGuard(());

impl WalkGuard {
    /// Begins a walk on the calling thread. The caller passes its thread id, since reading it costs a system call.
    #[inline]
    pub fn begin(thread_id: u32) -> Self {
        WALKING_THREAD.store(thread_id, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for WalkGuard {
    #[inline]
    fn drop(&mut self) {
        WALKING_THREAD.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom), not(miri)))] // Files and threads of the system.
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_walk_guard_marks_its_own_thread_until_it_is_dropped() {
        let me = thread_id();
        assert!(!is_walking(me));
        let guard = WalkGuard::begin(me);
        assert!(is_walking(me) && !is_walking(me + 1));
        drop(guard);
        assert!(!is_walking(me));
    }

    #[test]
    fn no_write_goes_to_a_descriptor_that_the_host_reused() {
        let name = |n: u32| std::env::temp_dir().join(format!("spanprof-walk-fault-{}-{n}", std::process::id()));
        let [ours, hosts] = [1, 2].map(|n| {
            let options = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(name(n));
            options.expect("a temporary file")
        });
        let location =
            FileWord { descriptor: ours.as_raw_fd(), identity: identity(ours.as_raw_fd()).unwrap(), offset: 4 };
        assert!(location.write(7));
        assert_eq!(std::fs::read(name(1)).unwrap(), [0, 0, 0, 0, 7, 0, 0, 0]);
        // SAFETY: both descriptors are open and owned by this test.
        assert!(unsafe { libc::dup2(hosts.as_raw_fd(), ours.as_raw_fd()) } >= 0);
        assert!(!location.write(8));
        assert!(std::fs::read(name(2)).unwrap().is_empty());
        for n in [1, 2] {
            std::fs::remove_file(name(n)).unwrap();
        }
    }
}
