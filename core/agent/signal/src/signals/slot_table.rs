//! The slots of the process: those of the threads by index, and the slot that a timer's value or a perf descriptor denotes.
//! Safe in handlers.

use crate::signals::slot::{Slot, GENERATION_MASK};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicUsize, Ordering};

/// Threads that can have a clock at one time, plus one: slot 0 represents the scan timer.
pub const SLOTS: usize = 4096;
/// Limit of perf descriptors: an event with a higher descriptor is not used.
const DESCRIPTORS: usize = 65_536;

static SLOT_TABLE: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// Slots from this index on were never used.
static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);
/// Slot index by perf descriptor; 0 is none. Its untouched pages use no memory.
static SLOT_OF_DESCRIPTOR: [AtomicU16; DESCRIPTORS] = [const { AtomicU16::new(0) }; DESCRIPTORS];

/// Publishes the slot table, once for the life of the process.
pub fn set_slot_table(slots: &'static [Slot; SLOTS]) {
    SLOT_TABLE.store(slots.as_ptr().cast_mut(), Ordering::Release);
}

/// The slot table; empty before `set_slot_table`.
pub fn slots() -> &'static [Slot] {
    let table = SLOT_TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return &[];
    }
    // SAFETY: `set_slot_table` received a `'static` reference to an array of this length.
    unsafe { core::slice::from_raw_parts(table, SLOTS) }
}

/// The slots that were ever used, slot 0 included: the range of a search.
pub fn used_slots() -> &'static [Slot] {
    slots().get(..USED_SLOTS.load(Ordering::Acquire)).unwrap_or(&[])
}

/// Includes slot `index` in [`used_slots`], before its first use.
pub fn mark_slot_used(index: usize) {
    USED_SLOTS.fetch_max(index + 1, Ordering::AcqRel);
}

/// Whether a thread is inside a tick.
pub(crate) fn is_in_tick(thread_id: u32) -> bool {
    used_slots().iter().any(|slot| slot.is_entered_by(thread_id))
}

/// The value of a timer's signal for a slot: its address with the generation in the low bits.
pub fn signal_value(index: usize, generation: u32) -> usize {
    SLOT_TABLE.load(Ordering::Acquire) as usize + index * size_of::<Slot>() + (generation & GENERATION_MASK) as usize
}

/// The slot index and generation of a timer's value; `None` for a value outside the table.
pub(crate) fn slot_of_value(value: usize) -> Option<(usize, u32)> {
    let table = SLOT_TABLE.load(Ordering::Acquire) as usize;
    let offset = value.wrapping_sub(table);
    if table == 0 || offset >= SLOTS * size_of::<Slot>() {
        return None;
    }
    Some((offset / size_of::<Slot>(), (offset % size_of::<Slot>()) as u32))
}

/// Maps a perf descriptor to its slot, or to none (0). False for a descriptor above the limit.
pub fn set_slot_of_descriptor(descriptor: u32, index: usize) -> bool {
    match SLOT_OF_DESCRIPTOR.get(descriptor as usize) {
        Some(entry) => {
            entry.store(index as u16, Ordering::Release);
            true
        }
        None => false,
    }
}

/// The slot index of a perf descriptor; 0 is none.
pub(crate) fn slot_of_descriptor(descriptor: u32) -> usize {
    SLOT_OF_DESCRIPTOR.get(descriptor as usize).map_or(0, |entry| entry.load(Ordering::Acquire)) as usize
}
