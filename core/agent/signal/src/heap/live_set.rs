//! The live set of the heap profile: the sampled objects that are not freed, by address. A fixed hash table in memory that
//! the caller provides. Insert and remove take constant time; no allocation, no lock, no wait. Not here: stacks and
//! weights, which the drain thread keeps by sample id (`heap` of `spanprof-aggregate`).
//!
//! # Rules
//! 1. A slot is free while its address is 0. An insert claims it by compare-and-swap of the address, then stores the
//!    sample id. An id is never reused and names its slot in the low bits.
//! 2. The id is taken out by one swap, or by one compare-and-swap: only one of several removals gets it. That one
//!    releases the slot by storing address 0. Between the two stores the slot is neither found nor claimed.
//! 3. The hook removes an object before the allocator frees it. While an address is in the set it is thus not allocated
//!    again, except if its slot is between the two stores of rule 2: a lookup skips slots without an id.
//! 4. The drain thread decides by the id whether its sample is live, so it needs no notice of frees.
//! 5. A thread that ends between two stores (in a forked child) leaves a slot that is not found and not claimed again.

use crate::atomics::{fence, AtomicU64, Ordering};
use crate::heap::address_filter::AddressFilter;

/// Length of the linear probe sequence.
#[cfg(not(loom))]
const MAX_PROBES: usize = 32;
#[cfg(loom)]
const MAX_PROBES: usize = 2;
/// Low bits of an id: the index of its slot.
const INDEX_BITS: u32 = 24;

/// One entry. All zero: free.
#[repr(C, align(32))]
pub struct LiveSlot {
    address: AtomicU64,
    sample: AtomicU64,
    size: AtomicU64,
    interval: AtomicU64,
}

impl LiveSlot {
    /// A free slot.
    #[cfg(any(test, loom))]
    pub fn free() -> Self {
        let zero = || AtomicU64::new(0);
        Self { address: zero(), sample: zero(), size: zero(), interval: zero() }
    }
}

/// A sampled object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveObject {
    /// Id of its sample; the key of the raw sample in the ring. Not 0.
    pub sample: u64,
    /// Its size, bytes.
    pub size: u64,
    /// The mean interval with which it was sampled, bytes.
    pub interval: u64,
}

/// The set; see the rules of this module.
pub struct LiveSet {
    slots: &'static [LiveSlot],
    filter: &'static AddressFilter,
    /// Number of inserts, for ids.
    inserts: AtomicU64,
    /// Number of objects in the set.
    objects: AtomicU64,
}

impl LiveSet {
    /// An empty set over free slots. `None` unless their number is a power of two, at most 2^24. `filter` belongs to
    /// this set alone.
    pub fn new(slots: &'static [LiveSlot], filter: &'static AddressFilter) -> Option<Self> {
        let is_valid = slots.len().is_power_of_two() && slots.len() <= 1 << INDEX_BITS;
        is_valid.then(|| Self { slots, filter, inserts: AtomicU64::new(0), objects: AtomicU64::new(0) })
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The filter of its addresses.
    #[cfg(all(test, not(loom)))]
    pub fn filter(&self) -> &AddressFilter {
        self.filter
    }

    /// Number of objects in the set.
    pub fn len(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Whether no object is in the set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn probe(&self, address: usize) -> impl Iterator<Item = (usize, &LiveSlot)> {
        let mask = self.slots.len() - 1;
        let first = ((address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        let index = move |step: usize| first.wrapping_add(step) & mask;
        (0..MAX_PROBES.min(self.slots.len())).filter_map(move |step| Some((index(step), self.slots.get(index(step))?)))
    }

    /// Adds a new object; returns the id of its sample. `None`: no free slot.
    pub fn insert(&self, address: usize, size: u64, interval: u64) -> Option<u64> {
        let claim = |slot: &LiveSlot| {
            slot.address.load(Ordering::Relaxed) == 0
                && slot.address.compare_exchange(0, address as u64, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let (index, slot) = self.probe(address).find(|(_, slot)| claim(slot))?;
        let sample = (self.inserts.fetch_add(1, Ordering::Relaxed) + 1) << INDEX_BITS | index as u64;
        slot.size.store(size, Ordering::Relaxed);
        slot.interval.store(interval, Ordering::Relaxed);
        slot.sample.store(sample, Ordering::Release);
        self.filter.add(address);
        self.objects.fetch_add(1, Ordering::Relaxed);
        Some(sample)
    }

    /// Removes the object at an address, before it is freed. `None`: it is not in the set.
    pub fn remove(&self, address: usize) -> Option<LiveObject> {
        if !self.filter.confirms(address) {
            return None;
        }
        self.probe(address).filter(|(_, slot)| slot.address.load(Ordering::Acquire) == address as u64).find_map(
            |(_, slot)| {
                let object = LiveObject {
                    sample: slot.sample.swap(0, Ordering::AcqRel),
                    size: slot.size.load(Ordering::Relaxed),
                    interval: slot.interval.load(Ordering::Relaxed),
                };
                (object.sample != 0).then(|| {
                    self.release(slot);
                    object
                })
            },
        )
    }

    /// Removes a sample that its owner no longer needs; false when its object was freed.
    pub fn remove_sample(&self, sample: u64) -> bool {
        self.slot_of(sample).is_some_and(|slot| {
            let taken = slot.sample.compare_exchange(sample, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if taken {
                self.release(slot);
            }
            taken
        })
    }

    /// Whether the object of a sample is live.
    pub fn contains(&self, sample: u64) -> bool {
        self.slot_of(sample).is_some_and(|slot| slot.sample.load(Ordering::Acquire) == sample)
    }

    pub fn objects(&self) -> impl Iterator<Item = LiveObject> + '_ {
        self.slots.iter().filter_map(Self::read)
    }

    /// The live object of a sample; `None` when it was removed.
    pub fn object(&self, sample: u64) -> Option<LiveObject> {
        self.slot_of(sample).and_then(Self::read).filter(|object| object.sample == sample)
    }

    /// The address of the live object of a sample; `None` when it was removed.
    pub fn address(&self, sample: u64) -> Option<usize> {
        let slot = self.slot_of(sample)?;
        let is_live = || slot.sample.load(Ordering::Acquire) == sample;
        // The address is stored before the id, and changes only after the id was taken out.
        let address = is_live().then(|| slot.address.load(Ordering::Relaxed) as usize)?;
        fence(Ordering::Acquire);
        is_live().then_some(address)
    }

    fn read(slot: &LiveSlot) -> Option<LiveObject> {
        let sample = slot.sample.load(Ordering::Acquire);
        let object = LiveObject {
            sample,
            size: slot.size.load(Ordering::Relaxed),
            interval: slot.interval.load(Ordering::Relaxed),
        };
        // The second load of the id follows those of the fields, which an insert overwrites only after a removal.
        fence(Ordering::Acquire);
        (sample != 0 && slot.sample.load(Ordering::Acquire) == sample).then_some(object)
    }

    /// Removes every object. An insert that runs meanwhile may be missed.
    pub fn clear(&self) {
        for slot in self.slots {
            if slot.sample.load(Ordering::Relaxed) != 0 && slot.sample.swap(0, Ordering::AcqRel) != 0 {
                self.release(slot);
            }
        }
    }

    fn slot_of(&self, sample: u64) -> Option<&LiveSlot> {
        let index = sample & ((1 << INDEX_BITS) - 1);
        self.slots.get(index as usize).filter(|_| sample != 0)
    }

    /// Releases a slot whose id the caller took out.
    fn release(&self, slot: &LiveSlot) {
        self.filter.remove(slot.address.load(Ordering::Relaxed) as usize);
        self.objects.fetch_sub(1, Ordering::Relaxed);
        slot.address.store(0, Ordering::Release);
    }
}
