//! Memory that handlers may touch at any time: mapped once, zeroed by the kernel as it is touched, never given back.

use super::system_calls::{self, SystemCall};
use std::ffi::CStr;
use std::sync::atomic::AtomicU64;

/// Zeroed memory for ever, named in /proc/self/maps where the kernel can.
fn map(bytes: usize, name: &CStr) -> Option<*mut libc::c_void> {
    map_as(libc::MAP_PRIVATE, bytes, name)
}

fn map_as(sharing: libc::c_int, bytes: usize, name: &CStr) -> Option<*mut libc::c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: asks for new anonymous memory; touches none that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    name_mapping(start, bytes, name);
    Some(start)
}

/// Names anonymous memory; a kernel without that feature refuses, which changes nothing.
pub(super) fn name_mapping(start: *mut libc::c_void, bytes: usize, name: &CStr) -> bool {
    const PR_SET_VMA: libc::c_int = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: libc::c_ulong = 0;
    // SAFETY: the kernel copies the name; the range is ours.
    let named =
        || unsafe { libc::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, start as libc::c_ulong, bytes, name.as_ptr()) == 0 };
    system_calls::may_use(SystemCall::Prctl) && named()
}

/// Types for which all-zero memory is a valid value.
///
/// # Safety
/// Every bit pattern of zeroes must be a valid value, and the alignment at most a page.
pub(super) unsafe trait Zeroed: 'static {}
// SAFETY: an atomic integer is valid when zero.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: a slot is made of atomic integers; all zero is a free slot, as its documentation says.
unsafe impl Zeroed for spanprof_signal::Slot {}
// SAFETY: two plain words.
unsafe impl Zeroed for spanprof_signal::RawFrame {}

/// `count` zeroed values for ever.
pub(super) fn zeroed<T: Zeroed>(count: usize, name: &CStr) -> Option<*mut T> {
    map(count.checked_mul(size_of::<T>())?, name).map(|start| start.cast())
}

/// Zeroed words for ever, which this process and those that it forks later share.
pub(super) fn shared_words(count: usize) -> Option<&'static [AtomicU64]> {
    let start = map_as(libc::MAP_SHARED, count.checked_mul(size_of::<AtomicU64>())?, c"spanprof children")?;
    // SAFETY: page-aligned, zeroed, never unmapped; other processes change the words atomically, as this one does.
    Some(unsafe { std::slice::from_raw_parts(start.cast(), count) })
}

/// As [`zeroed`], for values that are shared by reference.
pub(super) fn zeroed_slice<T: Zeroed + Sync>(count: usize, name: &CStr) -> Option<&'static [T]> {
    let start = zeroed::<T>(count, name)?;
    // SAFETY: `start` is the beginning of `count` values, page-aligned, zeroed, which `Zeroed` says are valid, and never
    // unmapped; nobody else has the address.
    Some(unsafe { std::slice::from_raw_parts(start, count) })
}
