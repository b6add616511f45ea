//! A fast test whether an address is in the live set: one byte load, without false negatives. Allocator hooks call it for
//! each freed object, and nearly all of these are not in the set.
//!
//! The index keeps the locality of addresses: 64 bytes of the filter cover 1 KiB of heap, so the filter's cache lines are
//! used as often as the heap's. Higher bits are folded in, since large objects begin at equal offsets of their pages.
//!
//! With 65,536 live samples, a fifth of the other addresses passes this test. They take a second one before the set is
//! searched: counters with another index, whose bits are mixed.

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
    /// For the second test. Model checkers go without it.
    #[cfg(not(loom))]
    mixed: [AtomicU8; COUNTERS],
}

impl AddressFilter {
    /// An empty filter.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { counts: [const { AtomicU8::new(0) }; COUNTERS], mixed: [const { AtomicU8::new(0) }; COUNTERS] }
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

    /// The second test, for an address that passed the first.
    #[inline]
    pub(crate) fn confirms(&self, address: usize) -> bool {
        self.counters(address).into_iter().all(|counter| counter.load(Ordering::Relaxed) != 0)
    }

    pub(crate) fn add(&self, address: usize) {
        let more = |count: u8| count.checked_add(1);
        for counter in self.counters(address) {
            let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
    }

    pub(crate) fn remove(&self, address: usize) {
        let fewer = |count: u8| if count == u8::MAX { None } else { count.checked_sub(1) };
        for counter in self.counters(address) {
            let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
    }

    #[cfg(not(loom))]
    fn counters(&self, address: usize) -> [&AtomicU8; 2] {
        let index = ((address as u64 >> 4).wrapping_mul(crate::split_mix::INCREMENT) >> 40) as usize;
        [&self.mixed[index & (COUNTERS - 1)], self.count(address)]
    }

    #[cfg(loom)]
    fn counters(&self, address: usize) -> [&AtomicU8; 1] {
        [self.count(address)]
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

    #[test]
    #[cfg(not(miri))]
    fn with_a_full_live_set_one_of_ten_other_addresses_remains_after_the_second_test() {
        let filter = Box::new(AddressFilter::new());
        let addresses = |seed: u64| (0..65_536u64).map(move |n| crate::split_mix::mix(seed + n) as usize & 0x3fff_fff0);
        addresses(0).for_each(|address| filter.add(address));
        assert!(addresses(0).all(|address| filter.may_contain(address) && filter.confirms(address)));
        let first = addresses(1 << 40).filter(|address| filter.may_contain(*address));
        let (mut passed, mut confirmed) = (0, 0);
        for address in first {
            passed += 1;
            confirmed += u32::from(filter.confirms(address));
        }
        // 22 % and 5 % are expected.
        assert!((13_000..16_000).contains(&passed) && confirmed < 6_554, "{passed} {confirmed}");
    }
}
