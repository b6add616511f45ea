//! Guarded reads of memory that may be unmapped (`spanprof_signal::guarded`). Safe in handlers and on the drain thread.

use spanprof_signal::guarded;

/// User-space addresses lie below this bound.
const HIGHEST: usize = 1 << 47;

#[inline]
pub fn word(address: usize) -> Option<usize> {
    if address >= HIGHEST {
        return None;
    }
    guarded::read_u64(address).map(|word| word as usize)
}

#[inline]
pub fn int(address: usize) -> Option<i32> {
    word(address).map(|word| word as u32 as i32)
}

#[inline]
pub fn short(address: usize) -> Option<u16> {
    word(address).map(|word| word as u16)
}

#[inline]
pub fn byte(address: usize) -> Option<u8> {
    word(address).map(|word| word as u8)
}

/// A pointer to a VM structure: word-aligned and not a small number.
#[inline]
pub fn pointer(address: usize) -> Option<usize> {
    word(address).filter(|pointer| pointer.is_multiple_of(8) && *pointer >= 4096 && *pointer < HIGHEST)
}
