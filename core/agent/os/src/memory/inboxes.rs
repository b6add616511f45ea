//! The memory of inboxes, sessions and slots. It is allocated at the first start that needs it and reused by later
//! ones. It is never freed, since a handler may hold any of it at any time.

use crate::memory::mapping::{zeroed, zeroed_slice};
use spanprof_signal::{handler, slot_table, CaptureFn, Inbox, RawFrame, Slot, MAX_FRAMES};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

const SMALLEST_POWER: usize = 13;
const LARGEST_POWER: usize = 25;
/// One inbox per size, indexed by the base-2 logarithm of its words.
static INBOXES: [AtomicPtr<Inbox>; LARGEST_POWER + 1] = [const { AtomicPtr::new(null_mut()) }; LARGEST_POWER + 1];

/// The process's inbox of this size: rounded up to a power of two between 64 KiB, which holds the deepest stack, and
/// 256 MiB. Calls with the same size return the same inbox. `None` without memory.
pub fn inbox(ring_bytes: usize) -> Option<&'static Inbox> {
    let words = ring_bytes.div_ceil(8).checked_next_power_of_two()?;
    let power = (words.trailing_zeros() as usize).clamp(SMALLEST_POWER, LARGEST_POWER);
    let entry = INBOXES.get(power)?;
    // SAFETY: only leaked boxes are ever stored there.
    if let Some(inbox) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
        return Some(inbox);
    }
    let made: &'static Inbox = Box::leak(Box::new(Inbox::new(zeroed_slice(1 << power, c"spanprof ring")?)?));
    let pointer = (made as *const Inbox).cast_mut();
    match entry.compare_exchange(null_mut(), pointer, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(made),
        // SAFETY: only leaked boxes are ever stored there. This one is another thread's; ours stays mapped and unused.
        Err(first) => unsafe { first.as_ref() },
    }
}

static IN_USE: AtomicPtr<Inbox> = AtomicPtr::new(null_mut());

/// Sets the inbox that receives samples from now on.
pub fn use_inbox(inbox: &'static Inbox) {
    IN_USE.store((inbox as *const Inbox).cast_mut(), Ordering::Release);
}

/// The inbox of the current or last run; `None` before the first. Its ring positions continue across runs.
pub fn inbox_in_use() -> Option<&'static Inbox> {
    // SAFETY: only `'static` references are ever stored there.
    unsafe { IN_USE.load(Ordering::Acquire).as_ref() }
}

/// Maps the slot table once. False without memory.
pub(crate) fn map_slots() -> bool {
    if !slot_table::slots().is_empty() {
        return true;
    }
    let slots = zeroed_slice::<Slot>(slot_table::SLOTS, c"spanprof slots").and_then(|slots| slots.try_into().ok());
    slots.map(slot_table::set_slot_table).is_some()
}

static SESSION: AtomicPtr<handler::SamplingSession> = AtomicPtr::new(null_mut());

/// The session for these settings: the last one if it matches, else a new one. Called while no handler is in a slot.
pub(crate) fn session(
    capture: CaptureFn,
    inbox: &'static Inbox,
    depth: usize,
) -> Option<&'static handler::SamplingSession> {
    let depth = depth.clamp(1, MAX_FRAMES);
    // SAFETY: only leaked boxes are ever stored there.
    let last = unsafe { SESSION.load(Ordering::Acquire).as_ref() };
    let scratch = match last {
        Some(last) if last.depth == depth => {
            if last.capture as usize == capture as usize && std::ptr::eq(last.inbox, inbox) {
                return Some(last);
            }
            last.scratch
        }
        _ => zeroed::<RawFrame>(slot_table::SLOTS * depth, c"spanprof scratch")?,
    };
    let made: &'static handler::SamplingSession =
        Box::leak(Box::new(handler::SamplingSession { capture, inbox, scratch, depth }));
    SESSION.store((made as *const handler::SamplingSession).cast_mut(), Ordering::Release);
    Some(made)
}

/// Empties the rings and resets their sleepers in a forked child.
pub(crate) fn reset_in_child() {
    for entry in &INBOXES {
        // SAFETY: only leaked boxes are ever stored there.
        if let Some(inbox) = unsafe { entry.load(Ordering::Acquire).as_ref() } {
            inbox.reset_after_fork();
        }
    }
}
