//! Memory that handlers may access at any time: mapped once, zeroed by the kernel on first access, never unmapped.

use crate::system_calls::{self, SystemCall};
use std::ffi::CStr;
use std::sync::atomic::AtomicU64;

/// Maps zeroed memory that is never unmapped, named in /proc/self/maps where the kernel supports names.
fn map(bytes: usize, name: &CStr) -> Option<*mut libc::c_void> {
    map_as(libc::MAP_PRIVATE, bytes, name)
}

fn map_as(sharing: libc::c_int, bytes: usize, name: &CStr) -> Option<*mut libc::c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: maps new anonymous memory; affects no existing mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    name_mapping(start, bytes, name);
    Some(start)
}

/// Address space that nobody else gets until the value is dropped. Under a limit (`ulimit -v`), a start with too little would
/// succeed in part, and the C library ends the process when it has no memory for a thread's storage (glibc,
/// elf/dl-tls.c, "cannot allocate memory for thread-local data").
pub(crate) struct ReservedAddresses {
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and any thread may unmap it.
unsafe impl Send for ReservedAddresses {}

impl ReservedAddresses {
    /// Reserves `bytes`; `None` where the system has less for the process.
    pub fn new(bytes: usize) -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: maps new anonymous memory, which nothing touches.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then_some(Self { start, bytes })
    }
}

impl Drop for ReservedAddresses {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly the mapping of `new`.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Least address space for a start of the profiler, bytes: the tables, the ring, the stacks of the threads and their first
/// allocations.
pub const START_BYTES: usize = 48 << 20;

/// Whether the system has this much address space for the process now.
pub fn has_address_space(bytes: usize) -> bool {
    ReservedAddresses::new(bytes).is_some()
}

/// Names anonymous memory. Kernels without the feature return an error without effect.
pub(crate) fn name_mapping(start: *mut libc::c_void, bytes: usize, name: &CStr) -> bool {
    const PR_SET_VMA: libc::c_int = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: libc::c_ulong = 0;
    // SAFETY: the kernel copies the name; the range is a mapping of ours.
    let named =
        || unsafe { libc::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, start as libc::c_ulong, bytes, name.as_ptr()) == 0 };
    system_calls::may_use(SystemCall::Prctl) && named()
}

/// Types for which all-zero memory is a valid value.
///
/// # Safety
/// All-zero memory must be a valid value, and the alignment at most a page.
pub(crate) unsafe trait Zeroed: 'static {}
// SAFETY: an atomic integer is valid when zero.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: a slot consists of atomic integers; all zero is a free slot by its documentation.
unsafe impl Zeroed for spanprof_signal::Slot {}
// SAFETY: four atomic integers; all zero is a free slot by its documentation.
unsafe impl Zeroed for spanprof_signal::LiveSlot {}
// SAFETY: two plain words.
unsafe impl Zeroed for spanprof_signal::RawFrame {}

/// `count` zeroed values, never unmapped.
pub(crate) fn zeroed<T: Zeroed>(count: usize, name: &CStr) -> Option<*mut T> {
    map(count.checked_mul(size_of::<T>())?, name).map(|start| start.cast())
}

/// Zeroed words, never unmapped, shared by this process and its later children.
pub(crate) fn shared_words(count: usize) -> Option<&'static [AtomicU64]> {
    let start = map_as(libc::MAP_SHARED, count.checked_mul(size_of::<AtomicU64>())?, c"spanprof children")?;
    // SAFETY: page-aligned, zeroed, never unmapped; all processes access the words atomically.
    Some(unsafe { std::slice::from_raw_parts(start.cast(), count) })
}

/// As [`zeroed`], as a shared slice.
pub(crate) fn zeroed_slice<T: Zeroed + Sync>(count: usize, name: &CStr) -> Option<&'static [T]> {
    let start = zeroed::<T>(count, name)?;
    // SAFETY: `start` points to `count` page-aligned zeroed values, valid by `Zeroed`, never unmapped, with no other
    // reference.
    Some(unsafe { std::slice::from_raw_parts(start, count) })
}
