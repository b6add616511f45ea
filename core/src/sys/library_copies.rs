//! One engine per process: two wheels, a runtime inside a runtime or two class loaders can bring a second copy of the
//! library. Each copy that runs announces itself in a mapping with a name, which `/proc/self/maps` shows to every other.
//! A forked child does not inherit the mapping. Where neither name nor /proc is to be had, nobody is seen: we go on.

use super::mapping::name_mapping;
use super::monotonic_ns;
use super::system_calls::{self, SystemCall};
use spanprof_signal::guarded;
use std::ffi::CStr;
use std::fmt;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The copy that was there first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherCopy {
    /// Its version.
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

/// What stands in the mapping. Every version of the library keeps this layout.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    magic: u64,
    process_id: u64,
    started_ns: u64,
    version: [u8; 32],
}

static OWN: AtomicPtr<Record> = AtomicPtr::new(null_mut());

/// Announces this copy, or names the one that was there first. Doing it again changes nothing. In a forked child it must
/// be done again: the parent's announcement does not exist there.
pub fn announce_copy() -> Result<(), OtherCopy> {
    let own = OWN.load(Ordering::Acquire);
    if !own.is_null() && is_mine(own) {
        return Ok(());
    }
    let started_ns = monotonic_ns();
    let Some(own) = publish(started_ns) else { return Ok(()) };
    // Each announces itself before it looks, so of two that start at once at least one sees the other.
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

/// Takes the announcement back, so that another copy may start.
pub fn withdraw_copy() {
    let own = OWN.swap(null_mut(), Ordering::AcqRel);
    if !own.is_null() && is_mine(own) {
        unmap(own);
    }
}

/// In a forked child: there is no announcement, and its address may be anybody's soon.
pub(super) fn forget_in_child() {
    OWN.store(null_mut(), Ordering::Release);
}

/// In a process that was cloned past the fork hook the address may be unmapped.
fn is_mine(own: *mut Record) -> bool {
    read(own as usize).is_some_and(|record| record.process_id == std::process::id() as u64)
}

fn unmap(record: *mut Record) {
    // SAFETY: a page that `publish` mapped in this process and nobody refers to any more.
    unsafe { libc::munmap(record.cast(), size_of::<Record>()) };
}

fn publish(started_ns: u64) -> Option<NonNull<Record>> {
    // A name of its own: the kernel would merge neighbours of the same name into one line.
    let name = std::ffi::CString::new(format!("{NAME}-{started_ns}")).ok()?;
    let record = map_named(&name)?;
    let mut version = [0; 32];
    for (to, from) in version.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from;
    }
    // SAFETY: a page of our own, writable, larger than the record and aligned. DONTFORK concerns only a child of ours.
    unsafe {
        record.as_ptr().write(Record { magic: MAGIC, process_id: std::process::id() as u64, started_ns, version });
        libc::madvise(record.as_ptr().cast(), size_of::<Record>(), libc::MADV_DONTFORK);
    }
    Some(record)
}

/// A private page under our name: anonymous and named where the kernel can, else of a memory file that carries the name.
fn map_named(name: &CStr) -> Option<NonNull<Record>> {
    const BYTES: usize = size_of::<Record>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: asks for new memory; touches none that exists.
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
    // SAFETY: a new descriptor of our own, closed again once it is mapped.
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

/// The earliest announcement in this process that is before ours.
fn earliest_other(own_address: usize, own_started_ns: u64) -> Option<OtherCopy> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let named = maps.lines().filter(|line| line.contains(NAME));
    let addresses = named.filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    let others =
        addresses.filter(|address| *address != own_address).filter_map(|address| Some((address, read(address)?)));
    let mine = std::process::id() as u64;
    let before = |(address, record): &(usize, Record)| {
        record.process_id == mine && (record.started_ns, *address) < (own_started_ns, own_address)
    };
    let (_, first) = others.filter(before).min_by_key(|(address, record)| (record.started_ns, *address))?;
    let version = first.version.split(|byte| *byte == 0).next().unwrap_or(&[]);
    Some(OtherCopy { version: String::from_utf8_lossy(version).into_owned(), started_ns: first.started_ns })
}

/// Reads a record that may vanish meanwhile.
fn read(address: usize) -> Option<Record> {
    let mut record = Record { magic: 0, process_id: 0, started_ns: 0, version: [0; 32] };
    // SAFETY: the destination is a local of that size, made of plain integers.
    let read = unsafe { guarded::copy((&raw mut record).cast(), address, size_of::<Record>()) };
    (read && record.magic == MAGIC).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_copy_sees_the_first_until_that_withdraws() {
        // In a child of its own, since announcements concern the whole process.
        super::super::fork_tests::in_child(the_second_copy_sees_the_first);
    }

    fn the_second_copy_sees_the_first() {
        // Another copy of the library has statics of its own: an announcement that ours does not know.
        let other = publish(monotonic_ns()).expect("the announcement is mapped");
        withdraw_copy();
        let seen = announce_copy().expect_err("the other was first");
        assert_eq!(seen.version, env!("CARGO_PKG_VERSION"));
        assert!(seen.to_string().contains("already profiles this process"));
        unmap(other.as_ptr());
        assert_eq!(announce_copy(), Ok(()));
        assert_eq!(announce_copy(), Ok(()), "again changes nothing");
        let later = publish(monotonic_ns()).expect("the announcement is mapped");
        assert!(earliest_other(later.as_ptr() as usize, u64::MAX).is_some(), "a later copy sees us");
        unmap(later.as_ptr());
        withdraw_copy();
        assert!(OWN.load(Ordering::Relaxed).is_null());
    }
}
