//! Walks the stack of the calling thread, in an allocator hook or before a wait for a lock. No allocation, no lock, no thread-local
//! storage.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_os::thread_context;
use spanprof_signal::{Captured, Context, ProcessMemory, RawFrame, RawStack};
use spanprof_unwind::{Registers, UnwindTables};

/// Number of calls of the functions between an allocation and its hook.
const MAX_ENTRY_FRAMES: usize = 12;
/// See [`set_entry_frames`]; 0: unused.
static ENTRY_FRAMES: [AtomicU64; MAX_ENTRY_FRAMES] = [const { AtomicU64::new(0) }; MAX_ENTRY_FRAMES];

/// The callers of the function in which the walk starts, without those of [`set_entry_frames`], and the thread's context.
pub(crate) fn walk_calling_thread(start: &Registers, stack: &mut RawStack<'_>) -> Captured {
    match thread_context::context_of(spanprof_os::thread_id()) {
        0 => {}
        id => stack.context = Context::Id(id),
    }
    walk_callers(start, stack, is_entry_frame);
    Captured::Walked
}

/// The callers of the function in which the walk starts, without those at the leaf for which `is_left_out` is true.
pub fn walk_callers(start: &Registers, stack: &mut RawStack<'_>, is_left_out: impl Fn(u64) -> bool) {
    let Some(tables) = UnwindTables::borrow() else { return };
    let mut walk = tables.walk(ProcessMemory, *start);
    if walk.step().is_ok() {
        walk.write_to_root(stack, |stack, pc| {
            let is_shown = !stack.is_empty() || !is_left_out(pc);
            is_shown.then_some(RawFrame { code: pc, at: 0 })
        });
    }
}

fn is_entry_frame(call: u64) -> bool {
    ENTRY_FRAMES.iter().any(|entry| entry.load(Ordering::Relaxed) == call)
}

/// Leaves these calls out at the leaf of each walk: functions between an allocation and its hook.
pub fn set_entry_frames(addresses: impl Iterator<Item = u64>) {
    for (entry, address) in ENTRY_FRAMES.iter().zip(addresses) {
        entry.store(address, Ordering::Relaxed);
    }
}
