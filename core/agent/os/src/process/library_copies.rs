//! Enforces one engine per process: two wheels, a nested runtime or two class loaders can load a second copy of the
//! library. Each running copy announces itself by a named mapping, which `/proc/self/maps` shows to all copies. A
//! forked child does not inherit the mapping. Without mapping names or /proc, no copy is detected and sampling
//! continues.

use crate::memory::mapping::name_mapping;
use crate::system_calls::{self, SystemCall};
use crate::time::monotonic_ns;
use spanprof_signal::guarded;
use std::ffi::CStr;
use std::fmt;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The copy that announced itself first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherCopy {
    pub version: String,
    /// When it announced itself, CLOCK_MONOTONIC.
    pub started_ns: u64,
}

impl fmt::Display for OtherCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another copy of spanprof (version {}) already profiles this process", self.version)
    }
}

const NAME: &str = "spanprof-copy";
const MAGIC: u64 = u64::from_le_bytes(*b"spanprof");

/// The content of the mapping. Every version of the library keeps this layout.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyRecord {
    magic: u64,
    process_id: u64,
    started_ns: u64,
    version: [u8; 32],
}

static OWN: AtomicPtr<CopyRecord> = AtomicPtr::new(null_mut());

/// Announces this copy, or returns the copy that was first. Idempotent. A forked child must announce itself again: it
/// does not inherit the parent's announcement.
pub fn announce_copy() -> Result<(), OtherCopy> {
    let own = OWN.load(Ordering::Acquire);
    if !own.is_null() && is_mine(own) {
        return Ok(());
    }
    let started_ns = monotonic_ns();
    let Some(own) = publish(started_ns) else { return Ok(()) };
    // Each copy announces itself before it searches, so of two concurrent starts at least one detects the other.
    match earliest_other(own.as_ptr() as usize, started_ns) {
        Some(other) => {
            unmap(own.as_ptr());
            Err(other)
        }
        None => {
            OWN.store(own.as_ptr(), Ordering::Release);
            Ok(())
        }
    }
}

/// Withdraws the announcement, so that another copy may start.
pub fn withdraw_copy() {
    let own = OWN.swap(null_mut(), Ordering::AcqRel);
    if !own.is_null() && is_mine(own) {
        unmap(own);
    }
}

/// Drops the announcement in a forked child, where it is not mapped and its address may be reused.
pub(crate) fn reset_in_child() {
    OWN.store(null_mut(), Ordering::Release);
}

/// Whether the announcement is of this process. After a clone without the fork hook its address may be unmapped.
fn is_mine(own: *mut CopyRecord) -> bool {
    read(own as usize).is_some_and(|record| record.process_id == std::process::id() as u64)
}

fn unmap(record: *mut CopyRecord) {
    // SAFETY: a page that `publish` mapped in this process, without any reference left.
    unsafe { libc::munmap(record.cast(), size_of::<CopyRecord>()) };
}

fn publish(started_ns: u64) -> Option<NonNull<CopyRecord>> {
    // A unique name: the kernel would merge adjacent mappings of the same name into one line.
    let name = std::ffi::CString::new(format!("{NAME}-{started_ns}")).ok()?;
    let record = map_named(&name)?;
    let mut version = [0; 32];
    for (to, from) in version.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from;
    }
    // SAFETY: a private writable page, larger than the record and aligned. DONTFORK affects only our children.
    unsafe {
        record.as_ptr().write(CopyRecord { magic: MAGIC, process_id: std::process::id() as u64, started_ns, version });
        libc::madvise(record.as_ptr().cast(), size_of::<CopyRecord>(), libc::MADV_DONTFORK);
    }
    Some(record)
}

/// A private page with our name: anonymous and named where the kernel supports it, else of a memfd with that name.
fn map_named(name: &CStr) -> Option<NonNull<CopyRecord>> {
    const BYTES: usize = size_of::<CopyRecord>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: maps new memory; affects no existing mapping.
    let anonymous =
        unsafe { libc::mmap(null_mut(), BYTES, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if anonymous == libc::MAP_FAILED {
        return None;
    }
    if name_mapping(anonymous, BYTES, name) {
        return NonNull::new(anonymous.cast());
    }
    unmap(anonymous.cast());
    if !system_calls::may_use(SystemCall::MemfdCreate) {
        return None;
    }
    // SAFETY: a new descriptor, closed once it is mapped.
    let mapped = unsafe {
        let file = libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) as libc::c_int;
        if file < 0 {
            return None;
        }
        let sized = libc::ftruncate(file, BYTES as libc::off_t) == 0;
        let mapped = libc::mmap(null_mut(), BYTES, protection, libc::MAP_PRIVATE, file, 0);
        libc::close(file);
        if mapped != libc::MAP_FAILED && !sized {
            unmap(mapped.cast());
            return None;
        }
        mapped
    };
    if mapped == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(mapped.cast())
    }
}

/// The earliest announcement in this process that precedes ours.
fn earliest_other(own_address: usize, own_started_ns: u64) -> Option<OtherCopy> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let named = maps.lines().filter(|line| line.contains(NAME));
    let addresses = named.filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    let others =
        addresses.filter(|address| *address != own_address).filter_map(|address| Some((address, read(address)?)));
    let mine = std::process::id() as u64;
    let before = |(address, record): &(usize, CopyRecord)| {
        record.process_id == mine && (record.started_ns, *address) < (own_started_ns, own_address)
    };
    let (_, first) = others.filter(before).min_by_key(|(address, record)| (record.started_ns, *address))?;
    let version = first.version.split(|byte| *byte == 0).next().unwrap_or(&[]);
    Some(OtherCopy { version: String::from_utf8_lossy(version).into_owned(), started_ns: first.started_ns })
}

/// Reads a record that may be unmapped concurrently.
fn read(address: usize) -> Option<CopyRecord> {
    let mut record = CopyRecord { magic: 0, process_id: 0, started_ns: 0, version: [0; 32] };
    // SAFETY: the destination is a local of this size that consists of plain integers.
    let read = unsafe { guarded::copy((&raw mut record).cast(), address, size_of::<CopyRecord>()) };
    (read && record.magic == MAGIC).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_copy_detects_the_first_until_it_withdraws() {
        // In a forked child, since announcements are process-wide.
        crate::testing::in_child(the_second_copy_detects_the_first);
    }

    fn the_second_copy_detects_the_first() {
        // Another copy of the library has its own statics: its announcement is unknown to ours.
        let other = publish(monotonic_ns()).expect("the announcement is mapped");
        withdraw_copy();
        let refused = announce_copy().expect_err("the other was first");
        assert_eq!(refused.version, env!("CARGO_PKG_VERSION"));
        assert!(refused.to_string().contains("already profiles this process"));
        unmap(other.as_ptr());
        assert_eq!(announce_copy(), Ok(()));
        assert_eq!(announce_copy(), Ok(()), "idempotent");
        let later = publish(monotonic_ns()).expect("the announcement is mapped");
        assert!(earliest_other(later.as_ptr() as usize, u64::MAX).is_some(), "a later copy detects ours");
        unmap(later.as_ptr());
        withdraw_copy();
        assert!(OWN.load(Ordering::Relaxed).is_null());
    }
}
