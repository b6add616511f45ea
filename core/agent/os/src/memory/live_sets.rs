//! The memory of live sets of the heap profile. It is mapped at the first start that needs it and reused by later ones. It
//! is never unmapped, since a hook may hold it at any time.

use crate::memory::mapping::zeroed_slice;
use spanprof_signal::heap::LIVE_ADDRESSES;
use spanprof_signal::{AddressFilter, LiveSet};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

const LARGEST_POWER: usize = 24;
/// One set per size, indexed by the base-2 logarithm of its slots. Only one is in use at a time; the others are empty.
static LIVE_SETS: [AtomicPtr<LiveSet>; LARGEST_POWER + 1] = [const { AtomicPtr::new(null_mut()) }; LARGEST_POWER + 1];

/// The process's live set for `max_samples`. Calls with the same number return the same set. `None` without memory.
pub fn live_set(max_samples: u32) -> Option<&'static LiveSet> {
    let entry = LIVE_SETS.get(slots(max_samples).trailing_zeros() as usize)?;
    // SAFETY: only leaked boxes are ever stored there.
    if let Some(set) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
        return Some(set);
    }
    let made: &'static LiveSet = Box::leak(Box::new(new_live_set(max_samples, &LIVE_ADDRESSES)?));
    let pointer = (made as *const LiveSet).cast_mut();
    match entry.compare_exchange(null_mut(), pointer, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        // SAFETY: only leaked boxes are ever stored there. This one is another thread's; ours stays mapped and unused.
        Err(first) => unsafe { first.as_ref() },
    }
}

/// An empty live set for `max_samples`. Its memory is never unmapped.
pub fn new_live_set(max_samples: u32, filter: &'static AddressFilter) -> Option<LiveSet> {
    LiveSet::new(zeroed_slice(slots(max_samples), c"spanprof live objects")?, filter)
}

/// At least twice the samples: probe sequences stay short, and samples have slots until the drain thread thins them.
fn slots(max_samples: u32) -> usize {
    (2 * max_samples as usize).next_power_of_two().min(1 << LARGEST_POWER)
}
