//! Cache-line prefetch of memory that a handler is about to use. Never loads, blocks or faults.

const LINE_BYTES: usize = 64;

/// Prefetches the cache lines of `bytes` bytes. Any address is valid.
#[inline(always)]
pub fn range(address: *const u8, bytes: usize) {
    let mut offset = 0;
    while offset < bytes {
        line(address.wrapping_add(offset));
        offset += LINE_BYTES;
    }
}

#[inline(always)]
fn line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is allowed and affects caches alone.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: `prfm` accepts any address and affects caches alone.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
