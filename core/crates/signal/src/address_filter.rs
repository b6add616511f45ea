//! A fast test whether an address is in the live set: one byte load, without false negatives. Allocator hooks call it for
//! each freed object, and nearly all of these are not in the set.
//!
//! The index keeps the locality of addresses: 64 bytes of the filter cover 1 KiB of heap, so the filter's cache lines are
//! used as often as the heap's. Higher bits are folded in, since large objects begin at equal offsets of their pages.

use crate::atomics::{AtomicU8, Ordering};

/// Number of counters: 256 KiB.
#[cfg(not(any(loom, miri)))]
const COUNTERS: usize = 1 << 18;
/// Model checkers need little memory.
#[cfg(any(loom, miri))]
const COUNTERS: usize = 8;

/// The number of live samples by hash of their address. A counter at 255 stays there.
pub struct AddressFilter {
    counts: [AtomicU8; COUNTERS],
}

impl AddressFilter {
    /// An empty filter.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { counts: [const { AtomicU8::new(0) }; COUNTERS] }
    }

    /// An empty filter.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { counts: core::array::from_fn(|_| AtomicU8::new(0)) }
    }

    #[inline(always)]
    fn count(&self, address: usize) -> &AtomicU8 {
        // Allocators align to 16 bytes.
        let index = (address >> 4) ^ (address >> 22);
        &self.counts[index & (COUNTERS - 1)]
    }

    /// False when the address is not in the set. The addition happened before, since the caller owns the object.
    #[inline(always)]
    pub fn may_contain(&self, address: usize) -> bool {
        self.count(address).load(Ordering::Relaxed) != 0
    }

    pub(crate) fn add(&self, address: usize) {
        let more = |count: u8| count.checked_add(1);
        let _ = self.count(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    pub(crate) fn remove(&self, address: usize) {
        let fewer = |count: u8| if count == u8::MAX { None } else { count.checked_sub(1) };
        let _ = self.count(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }
}

impl Default for AddressFilter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_counter_never_becomes_a_false_negative() {
        let filter = Box::new(AddressFilter::new());
        for _ in 0..300 {
            filter.add(0x1000);
        }
        for _ in 0..300 {
            filter.remove(0x1000);
        }
        assert!(filter.may_contain(0x1000));
    }

    #[test]
    fn addresses_are_contained_until_they_are_removed_as_often_as_added() {
        let filter = Box::new(AddressFilter::new());
        filter.add(0x1000);
        filter.add(0x1000);
        filter.remove(0x1000);
        assert!(filter.may_contain(0x1000) && !filter.may_contain(0x1010));
        filter.remove(0x1000);
        filter.remove(0x1000);
        assert!(!filter.may_contain(0x1000));
    }
}
