//! Tells, in a file that outlives the process, that it faulted inside a walk of ours, so that its next start can know.
//! The fault handler tells; nothing is written while all goes well. Where the file lies, and what it means, is the
//! facade's business; without one nothing is told. Safe in handlers.

use crate::forward::thread_id;
use crate::handler;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

static FILE: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
static OFFSET: AtomicU64 = AtomicU64::new(0);
/// The thread that walks another one, if any: there is one wall sampler.
static WALKER: AtomicU32 = AtomicU32::new(0);

/// A place of four bytes in an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The descriptor.
    pub descriptor: i32,
    /// Which file it was when it was opened: a host may close descriptors it does not know and open its own there.
    pub identity: (u64, u64),
    /// Where in the file.
    pub offset: u64,
}

impl Place {
    /// Writes four bytes there, if the descriptor is still that file. Async-signal-safe; may change errno.
    pub fn write(&self, word: u32) -> bool {
        if identity(self.descriptor) != Some(self.identity) {
            return false;
        }
        let offset = self.offset as libc::off_t;
        // SAFETY: the kernel reads four bytes of a local; the descriptor was just seen to be our file.
        unsafe { libc::pwrite(self.descriptor, (&raw const word).cast(), 4, offset) == 4 }
    }
}

/// Device and inode of an open file. Async-signal-safe; may change errno.
pub fn identity(descriptor: i32) -> Option<(u64, u64)> {
    // SAFETY: an all-zero stat is a valid value to be written over.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes one stat to a local; a number that is no descriptor is refused.
    let known = unsafe { libc::fstat(descriptor, &mut status) } == 0;
    #[allow(clippy::unnecessary_cast)] // Their widths differ between systems.
    known.then_some((status.st_dev as u64, status.st_ino as u64))
}

/// Where faults in walks are told from now on. Allocates nothing, takes no lock. Normal threads only, one at a time.
pub fn tell_in(place: Option<Place>) {
    FILE.store(-1, Ordering::Release);
    if let Some(place) = place {
        DEVICE.store(place.identity.0, Ordering::Relaxed);
        INODE.store(place.identity.1, Ordering::Relaxed);
        OFFSET.store(place.offset, Ordering::Relaxed);
        FILE.store(place.descriptor, Ordering::Release);
    }
}

/// Tells that the calling thread faulted, if it is inside a walk. Called by the fault handler, for faults that no
/// guarded read made; may change errno.
pub(crate) fn tell_fault() {
    let descriptor = FILE.load(Ordering::Acquire);
    if descriptor < 0 || !is_walking(thread_id()) {
        return;
    }
    let identity = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    Place { descriptor, identity, offset: OFFSET.load(Ordering::Relaxed) }.write(1);
}

fn is_walking(thread_id: u32) -> bool {
    let in_handler = || handler::touched_slots().iter().any(|slot| slot.is_entered_by(thread_id));
    WALKER.load(Ordering::Relaxed) == thread_id || in_handler()
}

/// A walk of another thread under way on this one, until it is dropped. Walks inside the clock's handler need none: the
/// slot says it.
pub struct Walking(());

impl Walking {
    /// A walk begins on the calling thread, whose id is passed: the sampler knows it, and asking costs a system call.
    #[inline]
    pub fn begin(thread_id: u32) -> Self {
        WALKER.store(thread_id, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Walking {
    #[inline]
    fn drop(&mut self) {
        WALKER.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom), not(miri)))] // Files and threads of the system.
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_thread_walks_from_the_beginning_of_its_walk_to_the_end_and_no_other_does() {
        let me = thread_id();
        assert!(!is_walking(me));
        let walking = Walking::begin(me);
        assert!(is_walking(me) && !is_walking(me + 1));
        drop(walking);
        assert!(!is_walking(me));
    }

    #[test]
    fn nothing_is_written_to_a_descriptor_that_became_another_file() {
        let name = |n: u32| std::env::temp_dir().join(format!("spanprof-place-{}-{n}", std::process::id()));
        let [ours, hosts] = [1, 2].map(|n| {
            let options = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(name(n));
            options.expect("a temporary file")
        });
        let place = Place { descriptor: ours.as_raw_fd(), identity: identity(ours.as_raw_fd()).unwrap(), offset: 4 };
        assert!(place.write(7));
        assert_eq!(std::fs::read(name(1)).unwrap(), [0, 0, 0, 0, 7, 0, 0, 0]);
        // SAFETY: both descriptors are open and this test's own.
        assert!(unsafe { libc::dup2(hosts.as_raw_fd(), ours.as_raw_fd()) } >= 0);
        assert!(!place.write(8));
        assert!(std::fs::read(name(2)).unwrap().is_empty());
        for n in [1, 2] {
            std::fs::remove_file(name(n)).unwrap();
        }
    }
}
